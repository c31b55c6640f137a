package command

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fleet-runtime/fleet-runtime/cmd/mcctl/internal/membership"
)

// rightsFlags say what the controllers may do in a member.
type rightsFlags struct {
	files   []string
	account string
}

func (r *rightsFlags) addFlags(to *pflag.FlagSet) {
	to.StringArrayVarP(&r.files, "rules", "f", nil, "A file with the roles of the controllers; - is the standard input. May be repeated")
	to.StringVar(&r.account, "service-account", "",
		"The account of the controllers in the member, as NAMESPACE/NAME. Default: the one in the files, or else fleet-system/fleet")
}

// validate reads no file.
func (r *rightsFlags) validate() error {
	if len(r.files) == 0 {
		return usageError("say with --rules what the controllers may do in the member")
	}
	_, err := r.named()
	return err
}

// defaultAccount is that of the controllers where nobody says another.
func defaultAccount() types.NamespacedName {
	return types.NamespacedName{Namespace: "fleet-system", Name: "fleet"}
}

// read reads the files. Fallback is the account where neither they nor the flags say one. If it is empty, one of them must.
func (r *rightsFlags) read(in io.Reader, fallback types.NamespacedName) (membership.Rights, error) {
	var none membership.Rights
	if err := r.validate(); err != nil {
		return none, err
	}
	account, err := r.named()
	if err != nil {
		return none, err
	}
	var all bytes.Buffer
	for _, name := range r.files {
		text, err := readFile(name, in)
		if err != nil {
			return none, fmt.Errorf("read the rules: %w", err)
		}
		all.WriteString("\n---\n")
		all.Write(text)
	}
	rights, err := membership.ReadRights(&all, account, fallback)
	if err != nil {
		return none, fmt.Errorf("read the rules in %s: %w", strings.Join(r.files, ", "), err)
	}
	if rights.Account.Name == "" {
		return none, usageError("say with --service-account by which account the controllers come to the member: there is none in %s", strings.Join(r.files, ", "))
	}
	return rights, nil
}

func (r *rightsFlags) named() (key types.NamespacedName, err error) {
	if r.account == "" {
		return key, nil
	}
	namespace, name, found := strings.Cut(r.account, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return key, usageError("--service-account is NAMESPACE/NAME, not %q", r.account)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// maxFile bounds what is read of one file, in bytes.
const maxFile = 4 << 20

func readFile(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name) //nolint:gosec // the caller names it
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is longer than %d MiB", name, maxFile>>20)
	}
	return text, err
}
