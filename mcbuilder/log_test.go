package mcbuilder

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// bare is a sink without what a sink may have beside the necessary.
type bare struct{ logr.LogSink }

func (b bare) WithValues(values ...any) logr.LogSink { return bare{b.LogSink.WithValues(values...)} }
func (b bare) WithName(name string) logr.LogSink     { return bare{b.LogSink.WithName(name)} }

func TestALineNamesItsClusterOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		log  func(logr.Logger)
		want string
	}{
		"not by itself":     {func(l logr.Logger) { l.Info("m", "k", "v") }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east" "k"="v"`},
		"by a string":       {func(l logr.Logger) { l.Info("m", "cluster", "east", "k", "v") }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east" "k"="v"`},
		"by a name":         {func(l logr.Logger) { l.Info("m", "cluster", mcreconcile.ClusterName("east")) }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east"`},
		"with values":       {func(l logr.Logger) { l.WithValues("cluster", "east", "k", "v").Info("m") }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east" "k"="v"`},
		"with values alone": {func(l logr.Logger) { l.WithValues("cluster", "east").WithValues("cluster", "east").Info("m") }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east"`},
		"below a name":      {func(l logr.Logger) { l.WithName("y").WithValues("cluster", "east").Info("m") }, `"logger"="x/y" "level"=0 "msg"="m" "cluster"="east"`},
		"in an error":       {func(l logr.Logger) { l.Error(errors.New("e"), "m", "k", "v", "cluster", "east") }, `"logger"="x" "msg"="m" "error"="e" "cluster"="east" "k"="v"`},
		"at a level":        {func(l logr.Logger) { l.V(1).Info("m", "cluster", "east") }, `"logger"="x" "level"=1 "msg"="m" "cluster"="east"`},
		"another key":       {func(l logr.Logger) { l.Info("m", "to", "east") }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east" "to"="east"`},
		"another cluster":   {func(l logr.Logger) { l.Info("m", "cluster", "west") }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east" "cluster"="west"`},
		"a key alone":       {func(l logr.Logger) { l.Info("m", "cluster") }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east" "cluster"="<no-value>"`}, //nolint:loggercheck // it is about that
		"a key that is odd": {func(l logr.Logger) { l.Info("m", 1, 2) }, `"logger"="x" "level"=0 "msg"="m" "cluster"="east" "<non-string-key: 1>"=2`},
	} {
		t.Run(name, func(t *testing.T) {
			var line string
			full := funcr.New(func(name, args string) { line = `"logger"="` + name + `" ` + args }, funcr.Options{Verbosity: 1})
			for _, sink := range []logr.LogSink{full.GetSink(), bare{full.GetSink()}} {
				tc.log(withCluster(full.WithSink(sink), "east").WithName("x"))
				if diff := cmp.Diff(tc.want, line); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestALineSaysWhereItComesFrom(t *testing.T) {
	var line string
	log := withCluster(funcr.New(func(_, args string) { line = args }, funcr.Options{LogCaller: funcr.All}), "east")
	check := func(what string) {
		t.Helper()
		if !strings.Contains(line, `"file"="log_test.go"`) {
			t.Errorf("%s: %s", what, line)
		}
	}
	log.Info("m")
	check("Info")
	log.WithValues("a", "b").Error(nil, "m")
	check("Error")
	func() { log.WithCallDepth(1).Info("m") }()
	check("from a helper")
}
