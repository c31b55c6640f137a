package kubeconfig_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fleet-runtime/fleet-runtime/providers/kubeconfig"
)

// aliases is a good kubeconfig with an extension, which nobody uses, in which a long text stands for many.
func aliases(length, times int) string {
	return "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: x}}]\n" +
		"clusters: [{name: a, cluster: {server: 'https://a'}}]\nextensions:\n- name: a\n  extension:\n    long: &long " +
		strings.Repeat("x", length) + "\n    many: [" + strings.Repeat("*long,", times) + "]\n"
}

// costly are texts of some hundred kilobytes that cost parsers much. What is said of each is what the error tells, or
// nothing if it does not matter.
func costly() map[string]struct{ text, want string } {
	const size = 400_000
	full := func(part string) string { return strings.Repeat(part, size/len(part)) }
	directives := &strings.Builder{}
	for i := 0; directives.Len() < size; i++ {
		fmt.Fprintf(directives, "%%TAG !%d! x\n", i)
	}
	lists := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 12 {
		lists += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return map[string]struct{ text, want string }{
		"a long text many times":             {aliases(44_000, 2_000), "line 9 has a YAML alias"},
		"lists of lists":                     {lists, "line 2 has a YAML alias"},
		"an alias for a field":               {"a: &a b\n*a : c", "line 2 has a YAML alias"},
		"a merge key":                        {"a: &a {b: c}\nd:\n  <<: *a", "line 3 has a YAML merge key"},
		"a merge key by its tag":             {"a: {!!merge x: {b: c}}", "line 1 has a YAML merge key"},
		"a merge of what is here":            {"a: {<<: {b: c}}", "line 1 has a YAML merge key"},
		"many elements":                      {"[" + full("a,") + full("a,") + "]", "fields and elements"},
		"many empty lists":                   {full("- ") + full("- "), "fields and elements"},
		"many empty fields":                  {full(":\n") + full(":\n"), "fields and elements"},
		"many fields in flow":                {"{" + full("'':,") + full("'':,") + full("'':,") + "}", "fields and elements"},
		"fewer elements":                     {"a: [" + full("abc, ") + "]", ""},
		"fewer fields":                       {full("a: #\n"), ""},
		"comments":                           {"[" + full("a, #\n") + "]", ""},
		"comments of elements":               {full("- a\n\n#\n\n"), ""},
		"deep in flow":                       {full("["), "fields and elements"},
		"less deep in flow":                  {strings.Repeat("{a: ", 5_000) + strings.Repeat("}", 5_000), "is nested more than 100 deep"},
		"deep in blocks":                     {strings.Repeat("- ", 5_000), "is nested more than 100 deep"},
		"deep and deep again":                {"[" + strings.Repeat(strings.Repeat("[", 9_000)+strings.Repeat("]", 9_000)+",", 20) + "]", ""},
		"directives":                         {directives.String(), "YAML directives"},
		"directives after a byte order mark": {"\ufeff" + directives.String(), "YAML directives"},
		"escapes":                            {`a: "` + full(`\L`) + `"`, ""},
		"brackets for HTML":                  {"a: " + full("<"), ""},
		"quotes":                             {"a: '" + full("''") + "'", ""},
		"broken lines":                       {`a: "` + full("\\\n") + `"`, ""},
		"one more than 16 MiB":               {strings.Repeat(" ", kubeconfig.MaxSize) + "a", "more than the 16777216 that are read"},
	}
}

const (
	// mostMemory is how many bytes of memory a text may take for each of its own, beside a megabyte for any. The most are
	// taken by "fewer fields".
	mostMemory = 500
	// mostTime is how many times as long as a good text a text may take for each of its bytes.
	mostTime = 50
)

// cost returns how many bytes f allocates, and how long it takes.
func cost(f func()) (memory int, duration time.Duration) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	duration = time.Since(start)
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc), duration
}

// ordinary returns how long a good kubeconfig of a megabyte takes.
func ordinary(tb testing.TB) time.Duration {
	tb.Helper()
	config := newKubeconfig()
	for i := range 1_000 {
		config.AuthInfos[fmt.Sprint(i)] = config.AuthInfos["admin"].DeepCopy()
		config.AuthInfos[fmt.Sprint(i)].Token = strings.Repeat("x", 1_000)
	}
	text := write(tb, config)
	_, duration := cost(func() { kubeconfig.Member("m", text, "", kubeconfig.Allow{}) })
	return duration
}

// wantCheap checks that reading a text costs no more than its size warrants. The time is compared with that of a good
// megabyte, with a megabyte for free, so that a busy machine slows both.
func wantCheap(tb testing.TB, size int, megabyte time.Duration, read func()) {
	tb.Helper()
	memory, duration := cost(read)
	if most := 1<<20 + mostMemory*size; memory > most {
		tb.Errorf("%d bytes took %d bytes of memory, more than %d", size, memory, most)
	}
	if most := mostTime * megabyte * time.Duration(1<<20+size) / (1 << 20); duration > most {
		tb.Errorf("%d bytes took %s, more than %s", size, duration, most)
	}
}

func TestWhatATextCostsGrowsWithItsSizeAlone(t *testing.T) {
	megabyte := ordinary(t)
	for name, tc := range costly() {
		t.Run(name, func(t *testing.T) {
			wantCheap(t, len(tc.text), megabyte, func() {
				if m := kubeconfig.Member("m", []byte(tc.text), "", kubeconfig.Allow{}); tc.want == "" {
					wantReadable(t, m.Err)
				} else {
					wantError(t, m.Err, kubeconfig.ReasonRefused, tc.want)
				}
			})
		})
	}
}

func TestASecretOfTheGreatestSizeInArgoCDsFormatCostsLittle(t *testing.T) {
	megabyte := ordinary(t)
	full := func(part string) string { return strings.Repeat(part, corev1.MaxSecretSize/len(part)) }
	for name, config := range map[string]string{
		"arguments":        `{"execProviderConfig": {"args": [` + full(`"",`) + `""]}}`,
		"fields":           "{" + full(`"":0,`) + `"":0}`,
		"depth":            full("["),
		"bytes that quote": `{"bearerToken": "` + full("\xff") + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			wantCheap(t, len(config), megabyte, func() { readArgoCD(t, argoCDConfig([]byte(config)), kubeconfig.Allow{Exec: programs}) })
		})
	}
}

func TestAFileOfTenThousandContextsIsRead(t *testing.T) {
	config := newKubeconfig()
	for i := range 10_000 {
		name := fmt.Sprintf("arn:aws:eks:eu-central-1:111122223333:cluster/member-%d", i)
		config.Contexts[name] = config.Contexts["main"].DeepCopy()
		config.Contexts[name].Cluster, config.Contexts[name].AuthInfo = name, name
		config.Clusters[name] = config.Clusters["east"].DeepCopy()
		config.AuthInfos[name] = config.AuthInfos["admin"].DeepCopy()
	}
	loaded, err := kubeconfig.Load(write(t, config))
	if err != nil || len(loaded.Contexts) != len(config.Contexts) {
		t.Fatalf("got %v, %v", len(loaded.Contexts), err)
	}
}

func TestAKubeconfigMeansWhatItMeansToKubectl(t *testing.T) {
	for name, tc := range map[string]struct{ cluster, user string }{
		"plain":                    {"server: https://a", "token: x"},
		"quoted":                   {`"server": 'https://a'`, `'token': "\x78"`},
		"a quoted number":          {"server: https://a", "token: '4711'"},
		"a date":                   {"server: https://a", "token: 2026-01-02"},
		"lines":                    {"server: https://a", "token: |-\n      x\n      y"},
		"folded lines":             {"server: https://a", "token: >\n      x\n      y"},
		"an anchor without alias":  {"server: &a https://a", "token: &b x"},
		"the last of two":          {"server: https://a", "token: y\n    token: x"},
		"words that are booleans":  {"server: https://a\n    disable-compression: yes\n    insecure-skip-tls-verify: Off", "token: x"},
		"booleans":                 {"server: https://a\n    disable-compression: TRUE", "token: x"},
		"nothing":                  {"server: https://a\n    certificate-authority-data: ~", "token: "},
		"fields that nobody knows": {"server: https://a\n    more: {a: [1, 0x10, 1e3], 2: ~}", "token: x"},
		"extensions":               {"server: https://a\n    extensions: [{name: a, extension: {b: [1, 0x10, 010, 1.5, yes, ~, '<']}}]", "token: x"},
		"a tag for what it is":     {"server: !!str https://a", "token: !!str 4711"},
		"letters of others":        {"server: https://a # \u00e9\n", "token: é"},
		"JSON":                     {`{"server": "https://a", "certificate-authority-data": "eA==", "disable-compression": true}`, `{"token": "a\u00e9\n"}`},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte("current-context: a\ncontexts:\n- name: a\n  context: {cluster: a, user: a}\n" +
				"clusters:\n- name: a\n  cluster:\n    " + tc.cluster + "\nusers:\n- name: a\n  user:\n    " + tc.user + "\n")
			want, err := clientcmd.Load(text)
			if err != nil {
				t.Fatal(err)
			}
			got, err := kubeconfig.Load(text)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v; (-kubectl +got):\n%s", err, diff)
			}
		})
	}
}

func TestEveryFormatRefusesAliases(t *testing.T) {
	text := []byte(aliases(10, 10))
	for name, tc := range map[string]struct {
		format kubeconfig.Format
		secret *corev1.Secret
	}{
		"ours":        {kubeconfig.Labelled(), &corev1.Secret{Data: withKey("kubeconfig", text)}},
		"Flux":        {kubeconfig.Flux(mine), &corev1.Secret{Data: withKey("value", text)}},
		"Cluster API": {kubeconfig.ClusterAPI(), clusterAPISecret("prod", "kubeconfig", withKey("value", text))},
		"Istio":       {kubeconfig.Istio(), &corev1.Secret{Data: withKey("east", text)}},
	} {
		t.Run(name, func(t *testing.T) {
			members, err := tc.format.Members(tc.secret, kubeconfig.Reading{})
			if err != nil || len(members) != 1 {
				t.Fatalf("got %d members and the error %v", len(members), err)
			}
			wantError(t, members[0].Err, kubeconfig.ReasonRefused, "has a YAML alias")
		})
	}
}
