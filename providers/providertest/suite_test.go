package providertest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleet-runtime/fleet-runtime/fleet"
)

func TestAGoodProviderPasses(t *testing.T) {
	Run(t, Harness{New: func(*testing.T) Source {
		return newMemory().source(func(m *memory) fleet.Provider { return good(m) })
	}})
}

func TestABrokenProviderFailsTheCasesThatAreAboutIt(t *testing.T) {
	for _, b := range brokenProviders() {
		t.Run(b.fault, func(t *testing.T) {
			t.Parallel()
			amiss := checkResults(runElsewhere(t, b.fault, shortPatience), "FAIL", b.fails)
			if amiss != "" { // the machine may have been too busy for what had to happen first
				t.Logf("with the patience %v: %s", shortPatience, amiss)
				amiss = checkResults(runElsewhere(t, b.fault, longPatience), "FAIL", b.fails)
			}
			if amiss != "" {
				t.Error(amiss)
			}
		})
	}
}

func TestWhatASourceCannotDoIsSkipped(t *testing.T) {
	out := runElsewhere(t, modest, patience)
	wantResults(t, out, "FAIL", nil)
	wantResults(t, out, "SKIP", map[string]string{
		"new credentials are news of the same member":        "no config here",
		"what is removed is withdrawn":                       "the source has no Remove",
		"what leaves is withdrawn when it has left":          "the source has no Leave",
		"what comes back is reported anew":                   "the source has no Remove",
		"what is renamed is withdrawn and reported":          "the source has no Rename",
		"labels are reported":                                "no labels here",
		"labels are followed":                                "no labels here",
		"what cannot be used harms no other":                 "the source has no Break",
		"the older of two has the name":                      "no config here",
		"a source that is away at the start is waited for":   "the source has no Interrupt",
		"an interruption withdraws nothing and is caught up": "the source has no Remove",
		"the end waits for no drain":                         "the source has no Remove",
		"no goroutine is left":                               "it is known to leave one",
		"no cluster is called":                               "no config here",
		"no credentials are told":                            "no config here",
	})
}

func TestSkippingWhatIsNoCaseIsAMistake(t *testing.T) {
	if out := runElsewhere(t, mistaken, patience); !strings.Contains(out, `Harness.Skip has "no such case", which is no case`) {
		t.Error(out)
	}
}

func TestTheGuideExplainsEveryCase(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "writing-a-provider.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases() {
		if !strings.Contains(string(guide), "| `"+c.name+"` |") {
			t.Errorf("docs/writing-a-provider.md has no line for %q", c.name)
		}
	}
}

// Harnesses that are not about a fault.
const modest, mistaken = "a source that can do little", "an unknown case is skipped"

// How long a case waits that is bound to fail: at first, and once more if the results are not the expected ones. What
// does not happen needs no long wait, but it is preceded by what must happen, which comes late on a busy machine.
const shortPatience, longPatience = time.Second, 20 * time.Second

const (
	// elsewhere names the harness that a process of tests runs the suite on.
	elsewhere = "PROVIDERTEST_HARNESS"
	// patienceElsewhere is how long its cases wait that are bound to fail.
	patienceElsewhere = "PROVIDERTEST_PATIENCE"
)

// runElsewhere returns what the suite says of a harness, in a process of its own: most of it fails there. Cases that are
// bound to fail wait as long as the patience says.
func runElsewhere(t *testing.T, harness string, patience time.Duration) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestElsewhere$", "-test.v")
	cmd.Env = append(os.Environ(), elsewhere+"="+harness, patienceElsewhere+"="+patience.String())
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

// wantResults fails the test if checkResults finds something amiss.
func wantResults(t *testing.T, out, result string, want map[string]string) {
	t.Helper()
	if amiss := checkResults(out, result, want); amiss != "" {
		t.Error(amiss)
	}
}

// checkResults compares the cases that have a result, and looks for the text of each. It returns what is amiss.
func checkResults(out, result string, want map[string]string) (amiss string) {
	got := map[string]string{}
	for _, match := range regexp.MustCompile(`(?m)^ +--- `+result+`: TestElsewhere/(\S+)`).FindAllStringSubmatch(out, -1) {
		_, said, _ := strings.Cut(out, "=== RUN   TestElsewhere/"+match[1]+"\n")
		said, _, _ = strings.Cut(said, "=== RUN ")
		got[strings.ReplaceAll(match[1], "_", " ")] = said
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
		amiss += fmt.Sprintf("%s of cases (-want +got):\n%s\n%s\n", result, diff, out)
	}
	for name, text := range want {
		if !strings.Contains(got[name], text) {
			amiss += fmt.Sprintf("%q says nothing of %q:\n%s\n", name, text, got[name])
		}
	}
	return amiss
}

// TestElsewhere is what runElsewhere runs.
func TestElsewhere(t *testing.T) {
	switch name := os.Getenv(elsewhere); name {
	case "":
		t.Skip("it is a part of other tests")
	case modest:
		Run(t, Harness{
			NoConfig: "no config here", NoLabels: "no labels here",
			Skip: map[string]string{"no goroutine is left": "it is known to leave one"},
			New: func(*testing.T) Source {
				all := newMemory().source(func(m *memory) fleet.Provider { return unreachable(m) })
				return Source{Provider: all.Provider, Set: all.Set}
			},
		})
	case mistaken:
		Run(t, Harness{Skip: map[string]string{"no such case": ""}, New: func(*testing.T) Source { return Source{} }})
	default:
		for _, b := range brokenProviders() {
			if b.fault == name {
				atMost, err := time.ParseDuration(os.Getenv(patienceElsewhere))
				if err != nil {
					t.Fatal(err)
				}
				b.run(t, atMost)
			}
		}
	}
}

// run runs the suite. Cases that are bound to fail wait no longer than atMost.
func (b broken) run(t *testing.T, atMost time.Duration) {
	t.Helper()
	suite{
		Harness: Harness{New: func(*testing.T) Source { return newMemory().source(b.make) }},
		patienceFor: func(name string) time.Duration {
			if _, fails := b.fails[name]; fails {
				return atMost
			}
			return patience
		},
	}.run(t)
}
