package command

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(s *shared, released string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of mcctl",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(s.streams.Out, "mcctl %s %s/%s %s\n", versionOf(released), runtime.GOOS, runtime.GOARCH, runtime.Version())
			return err
		},
	}
}

// versionOf is that of a release, or of the module that go install has fetched.
func versionOf(released string) string {
	if released != "" {
		return released
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
