package fleet

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// telling returns a fleet, and what it has logged.
func telling() (f *Fleet, lines *[]string) {
	lines = &[]string{}
	logger := funcr.New(func(_, line string) { *lines = append(*lines, line) }, funcr.Options{})
	return New(Options{Logger: logger}), lines
}

func TestAProblemShowsFromItsBeginningToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := telling()
		began := time.Now()
		members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/b", Reason: "NoMember", Message: "it is empty"})
		members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/a", Member: "m", Reason: "DuplicateName", Message: "b has it"})
		<-time.After(time.Second)
		members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/b", Reason: "NoMember", Message: "it is still empty"})
		want := []Problem{
			{Provider: "p", About: "Secret ns/a", Member: "m", Reason: "DuplicateName", Message: "b has it", Since: began},
			{Provider: "p", About: "Secret ns/b", Reason: "NoMember", Message: "it is still empty", Since: began},
		}
		if diff := cmp.Diff(want, f.Problems()); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
		members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/b", Reason: "Panic"})
		if got := f.Problems()[1]; !got.Since.After(began) {
			t.Errorf("another reason has the time of the first: %v", got)
		}
		members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/b"})
		members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/a"}) // about the object, and not about its member
		if diff := cmp.Diff(want[:1], f.Problems()); diff != "" {
			t.Errorf("after the end of one (-want +got):\n%s", diff)
		}
	})
}

func TestAProblemIsLoggedWhenItBeginsAndWhenItEnds(t *testing.T) {
	f, lines := telling()
	for _, message := range []string{"it is empty", "it is empty", "it is still empty"} {
		members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/a", Reason: "NoMember", Message: message})
	}
	members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/a", Member: "m", Reason: "DuplicateName", Message: "b has it"})
	members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/a"})
	members{f}.SetProblem(Problem{Provider: "p", About: "Secret ns/a"})
	want := []string{
		`"level"=0 "msg"="Discovery: there is a problem" "provider"="p" "about"="Secret ns/a" "reason"="NoMember" "message"="it is empty"`,
		`"level"=0 "msg"="Discovery: there is a problem" "provider"="p" "about"="Secret ns/a" "reason"="DuplicateName" "cluster"="m" "message"="b has it"`,
		`"level"=0 "msg"="Discovery: a problem has ended" "provider"="p" "about"="Secret ns/a" "reason"="NoMember"`,
	}
	if diff := cmp.Diff(want, *lines); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestTextOfProblemsIsFitToBeShown(t *testing.T) {
	f, lines := telling()
	hostile := "\x1b[31m\u202e\n" + strings.Repeat("x", 10_000)
	members{f}.SetProblem(Problem{Provider: hostile, About: hostile, Member: ClusterName(hostile), Reason: hostile, Message: hostile})
	p := f.Problems()[0]
	for _, text := range []string{p.Provider, p.About, string(p.Member), p.Reason, p.Message} {
		if len(text) > 400 || strings.ContainsAny(text, "\x1b\u202e\n") {
			t.Errorf("not fit to be shown: %d bytes, %q", len(text), text)
		}
	}
	if len((*lines)[0]) > 2000 || strings.ContainsAny((*lines)[0], "\x1b\u202e") {
		t.Errorf("not fit to be logged: %q", (*lines)[0])
	}
}

// problemSeriesOf returns the fleet's series of problems.
func problemSeriesOf(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "fleet_runtime_discovery_problems" {
			continue
		}
		for _, metric := range family.GetMetric() {
			found[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	return found
}

func TestAMetricCountsProblemsWhileThereAreSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := running(t, Options{})
		synctest.Wait()
		for i := range 3 {
			members{f}.SetProblem(Problem{Provider: "p", About: fmt.Sprint(i), Reason: "NoMember"})
		}
		members{f}.SetProblem(Problem{Provider: "p", About: "0", Reason: "Panic"})
		if diff := cmp.Diff(map[string]float64{"p NoMember": 2, "p Panic": 1}, problemSeriesOf(t)); diff != "" {
			t.Errorf("series (-want +got):\n%s", diff)
		}
		for i := range 3 {
			members{f}.SetProblem(Problem{Provider: "p", About: fmt.Sprint(i)})
		}
		if diff := cmp.Diff(map[string]float64{}, problemSeriesOf(t)); diff != "" {
			t.Errorf("series that are left (-want +got):\n%s", diff)
		}
	})
}

func TestAsManyProblemsAsThereAreSeriesHaveTheirOwn(t *testing.T) {
	f, _ := telling()
	for i := range mostProblemSeries {
		members{f}.SetProblem(Problem{Provider: fmt.Sprint(i), About: "it", Reason: "Bad"})
	}
	for series, n := range f.problems.figures() {
		if series.provider == otherMembers || n != 1 {
			t.Errorf("the series %v counts %d, want one for each", series, n)
		}
	}
}

func TestProblemsBeyondTheMostAreCounted(t *testing.T) {
	f, lines := telling()
	const more = 3 * mostProblemSeries
	set := func(i int, reason string) {
		members{f}.SetProblem(Problem{Provider: fmt.Sprintf("p%03d", i%more), About: fmt.Sprint(i), Reason: reason})
	}
	for range 2 { // the same again is counted once
		for i := range mostProblems + more {
			set(i, "Bad")
		}
	}
	list := f.Problems()
	if last := list[len(list)-1]; len(list) != mostProblems+1 || !strings.HasPrefix(last.Message, fmt.Sprintf("%d more", more)) {
		t.Errorf("there are %d, the last is %v", len(list), last)
	}
	if len(*lines) != mostProblems {
		t.Errorf("%d lines were logged, want %d", len(*lines), mostProblems)
	}
	sum, figures := 0, f.problems.figures()
	for _, n := range figures {
		sum += n
	}
	if len(figures) != mostProblemSeries || sum != mostProblems+more {
		t.Errorf("%d series count %d problems", len(figures), sum)
	}

	for i := range mostProblems + more {
		set(i, "")
	}
	if list := f.Problems(); len(list) > 0 || len(f.problems.beyond) > 0 || len(f.problems.counts) > 0 {
		t.Errorf("%d problems are left, %d beyond, and counts %v", len(list), len(f.problems.beyond), f.problems.counts)
	}
}
