package mcqueue

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleet-runtime/fleet-runtime/mcreconcile"
)

// req is a request written "cluster/name".
func req(s string) mcreconcile.Request {
	cluster, name, _ := strings.Cut(s, "/")
	r := mcreconcile.Request{ClusterName: mcreconcile.ClusterName(cluster)}
	r.Name = name
	return r
}

func written(r mcreconcile.Request) string { return string(r.ClusterName) + "/" + r.Name }

// flowOf is which flow a request is of: cluster/flow-name, or the half of the numbers.
func flowOf(r mcreconcile.Request) string {
	flow, _, several := strings.Cut(r.Name, "-")
	if several {
		return flow
	}
	return map[bool]string{true: "low", false: "high"}[r.Name < "3"]
}

// targetOf is where a request is worked on: cluster/target.name, or by the number.
func targetOf(r mcreconcile.Request) mcreconcile.ClusterName {
	if target, _, has := strings.Cut(r.Name, "."); has {
		return mcreconcile.ClusterName(target)
	}
	target, elsewhere := map[string]mcreconcile.ClusterName{"0": "a", "1": "b", "2": "x"}[r.Name]
	if !elsewhere {
		return r.ClusterName
	}
	return target
}

// script drives an order by a line of words:
//
//	a/x       add        a/x:5     add with priority 5     a/x@3  add, ready at 3 s
//	take:N    take N     done:a/x  done                    at:3   it is 3 s
//	pause:a   resume:a   purge:a   weigh2:a  its weight is 2
//	silent:a/x  it waits for its cluster   away:a/x  for another one   heard:a/x  it waits no longer
//
// and returns what was taken, in order.
func script(t *testing.T, o *order[mcreconcile.Request], words string) []string {
	t.Helper()
	var now time.Duration
	var taken []string
	for word := range strings.FieldsSeq(words) {
		verb, arg, _ := strings.Cut(word, ":")
		switch verb {
		case "take":
			var n int
			if _, err := fmt.Sscan(arg, &n); err != nil {
				t.Fatal(err)
			}
			for range n {
				if i, ok := o.take(now); ok {
					taken = append(taken, written(i.request))
				} else {
					taken = append(taken, "-")
				}
			}
		case "done":
			o.done(req(arg))
		case "silent", "away":
			o.yield(req(arg), verb == "away")
		case "heard":
			o.reclaim(req(arg))
		case "pause":
			o.pause(mcreconcile.ClusterName(arg))
		case "resume":
			o.resume(mcreconcile.ClusterName(arg))
		case "weigh1", "weigh2", "weigh3":
			o.weigh(mcreconcile.ClusterName(arg), int(verb[len(verb)-1]-'0'))
		case "purge":
			o.purge(mcreconcile.ClusterName(arg), func(*item[mcreconcile.Request]) {})
		case "at":
			var s int
			if _, err := fmt.Sscan(arg, &s); err != nil {
				t.Fatal(err)
			}
			now = time.Duration(s) * time.Second
			o.advance(now, func(*item[mcreconcile.Request]) {})
		default:
			addWord(t, o, word, now)
		}
	}
	return taken
}

func addWord(t *testing.T, o *order[mcreconcile.Request], word string, now time.Duration) {
	t.Helper()
	what, after, _ := strings.Cut(word, "@")
	what, prio, _ := strings.Cut(what, ":")
	var priority, at int
	if prio != "" {
		if _, err := fmt.Sscan(prio, &priority); err != nil {
			t.Fatal(err)
		}
	}
	if after != "" {
		if _, err := fmt.Sscan(after, &at); err != nil {
			t.Fatal(err)
		}
	}
	o.add(req(what), priority, now, time.Duration(at)*time.Second)
}

func TestOrder(t *testing.T) {
	cases := map[string]struct {
		reason string
		limit  int
		share  float64 // the default if not set
		script string
		want   string

		workers, spare int
		flows, targets bool
	}{
		"FirstInFirstOut":        {reason: "Equals go by arrival.", script: "a/1 a/2 a/3 take:4", want: "a/1 a/2 a/3 -"},
		"HigherPriorityFirst":    {reason: "Within a cluster the priority counts.", script: "a/1 a/2:5 a/3:9 take:3", want: "a/3 a/2 a/1"},
		"RoundRobin":             {reason: "Clusters take turns, however deep one's backlog is.", script: "a/1 a/2 a/3 a/4 b/1 c/1 take:6", want: "a/1 b/1 c/1 a/2 a/3 a/4"},
		"PriorityIsOfTheCluster": {reason: "A high priority in one cluster does not pass by the others' turns.", script: "a/1:9 a/2:9 b/1 take:3", want: "a/1 b/1 a/2"},
		"LateChange":             {reason: "A change waits for one turn of each busy cluster.", script: "a/1 a/2 a/3 b/1 b/2 take:1 c/1 take:5", want: "a/1 b/1 a/2 c/1 b/2 a/3"},
		"Weights":                {reason: "A weight of two is two turns in a row.", script: "weigh2:a a/1 a/2 a/3 b/1 b/2 take:5", want: "a/1 a/2 b/1 a/3 b/2"},
		"WeightRises":            {reason: "A new weight holds from the next turn.", script: "a/1 a/2 a/3 b/1 b/2 b/3 weigh3:b take:6", want: "a/1 b/1 a/2 b/2 b/3 a/3"},
		"WeightFalls":            {reason: "A lower weight ends a turn that has taken as much.", script: "weigh3:a a/1 a/2 a/3 b/1 weigh1:a take:4", want: "a/1 b/1 a/2 a/3"},
		"WeightIsForgotten":      {reason: "A cluster that was purged has the weight of any other.", script: "weigh3:a purge:a a/1 a/2 b/1 take:3", want: "a/1 b/1 a/2"},
		"WeightOfBothBands":      {reason: "A weight holds for the background too.", script: "weigh2:a a/1:-1 a/2:-1 a/3:-1 b/1:-1 take:4", want: "a/1 a/2 b/1 a/3"},
		"FreshBeforeBackground":  {reason: "What changed goes before initial lists.", script: "a/1:-100 b/1 c/1 take:3", want: "b/1 c/1 a/1"},
		"BackgroundShare":        {reason: "One pick in eight is of the background.", script: "b/x:-1 a/1 a/2 a/3 a/4 a/5 a/6 a/7 a/8 a/9 take:10", want: "a/1 a/2 a/3 a/4 a/5 a/6 a/7 b/x a/8 a/9"},
		"BackgroundThird":        {reason: "A share need not be exact in binary.", share: 1.0 / 3, script: "b/x:-1 b/y:-1 a/1 a/2 a/3 a/4 a/5 take:7", want: "a/1 a/2 b/x a/3 a/4 b/y a/5"},
		"BackgroundTwoFifths":    {reason: "A share need not be one of so many: two in five.", share: 0.4, script: "b/1:-1 b/2:-1 b/3:-1 b/4:-1 a/1 a/2 a/3 a/4 a/5 a/6 take:10", want: "a/1 a/2 b/1 a/3 b/2 a/4 a/5 b/3 a/6 b/4"},
		"BackgroundFirst":        {reason: "A share of one lets the background go first.", share: 1, script: "a/1 b/1:-1 b/2:-1 take:3", want: "b/1 b/2 a/1"},
		"BackgroundAlone":        {reason: "What the background had while nothing else waited is not held against it.", share: 0.5, script: "b/1:-1 b/2:-1 take:2 a/1 a/2 b/3:-1 take:3", want: "b/1 b/2 a/1 b/3 a/2"},
		"BackgroundOrder":        {reason: "The background goes by priority too.", script: "a/1:-100 a/2:-1 take:2", want: "a/2 a/1"},
		"Deduplicated":           {reason: "Equal requests are one.", script: "a/1 b/1 a/1 take:3", want: "a/1 b/1 -"},
		"HeldWhileInFlight":      {reason: "What is in flight is not handed out again before it is done.", script: "a/1 take:1 a/1 take:1 done:a/1 take:1", want: "a/1 - a/1"},
		"HeldDoesNotBlock":       {reason: "A request that is held back does not hold up the next.", script: "a/1 take:1 a/1 a/2 take:1", want: "a/1 a/2"},
		"HeldAndRaised":          {reason: "A held request takes a higher priority.", script: "a/1 take:2 a/1 a/2:3 a/1:5 done:a/1 take:2", want: "a/1 - a/1 a/2"},
		"PriorityOnlyRises":      {reason: "A lower priority does not lower it.", script: "a/1:5 a/2:3 a/1:1 take:2", want: "a/1 a/2"},
		"RaisedGoesBehindEquals": {reason: "A raised request goes behind those that had the priority before.", script: "a/1 a/2:5 a/1:5 take:2", want: "a/2 a/1"},
		"RaisedOutOfBackground":  {reason: "A change to an object of the initial list is fresh.", script: "a/1:-100 b/1 a/1:0 take:2", want: "b/1 a/1"},
		"NotBeforeItsTime":       {reason: "A delayed request waits.", script: "a/1@5 take:1 at:4 take:1 at:5 take:1", want: "- - a/1"},
		"EarliestTimeHolds":      {reason: "The earlier of two times holds.", script: "a/1@5 a/1@3 a/1@9 at:3 take:1 at:9 take:1", want: "a/1 -"},
		"AtOnceBeatsLater":       {reason: "An add without delay makes a delayed request ready.", script: "a/1@5 a/1 take:1 at:5 take:1", want: "a/1 -"},
		"LaterDoesNotDelay":      {reason: "A request that is ready stays so.", script: "a/1 a/1@5 take:1", want: "a/1"},
		"DelayedKeepsPriority":   {reason: "The higher priority holds when the time has come.", script: "a/1:5@5 a/2@4 at:5 take:2", want: "a/1 a/2"},
		"DelayedGoByTheirTime":   {reason: "What became ready first goes first.", script: "a/1@5 a/2@4 at:4 at:5 take:2", want: "a/2 a/1"},
		"DelayedAndInFlight":     {reason: "A delay that ends in flight leads to another turn after done.", script: "a/1 take:1 a/1@2 at:2 take:1 done:a/1 take:1", want: "a/1 - a/1"},
		"Limit":                  {reason: "A cluster has no more in flight than the limit.", limit: 2, script: "a/1 a/2 a/3 a/4 b/1 take:4 done:a/1 take:1", want: "a/1 b/1 a/2 - a/3"},
		"LimitOfEachBand":        {reason: "The limit counts both bands.", limit: 1, script: "a/1 a/2:-1 take:2 done:a/1 take:1", want: "a/1 - a/2"},
		"Paused":                 {reason: "A paused cluster is passed by.", script: "a/1 b/1 pause:a take:2 resume:a take:1", want: "b/1 - a/1"},
		"PausedTakesMore":        {reason: "Parked requests coalesce, rise, and go on in order.", script: "pause:a a/1 a/2 a/1 a/3:5 take:1 resume:a take:4", want: "- a/3 a/1 a/2 -"},
		"PausedWhileDelayed":     {reason: "A delay that ends while paused parks the request.", script: "a/1@1 pause:a at:1 take:1 resume:a take:1", want: "- a/1"},
		"PausedInFlight":         {reason: "What is in flight goes on, and comes back parked.", script: "a/1 take:1 pause:a a/1 done:a/1 take:1 resume:a take:1", want: "a/1 - a/1"},
		"Purged":                 {reason: "Ready, delayed and held requests are gone.", script: "a/1 take:1 a/1 a/2 a/3@2 b/1 purge:a done:a/1 at:2 take:2", want: "a/1 b/1 -"},
		"PurgedIsNotPaused":      {reason: "A purge ends the pause.", script: "pause:a a/1 purge:a a/2 take:2", want: "a/2 -"},
		"Workers":                {reason: "As many count as there are workers.", workers: 2, spare: 9, script: "a/1 b/1 c/1 take:3 done:a/1 take:1", want: "a/1 b/1 - c/1"},
		"SilentDoNotCount":       {reason: "What waits for a silent cluster needs no worker.", workers: 1, spare: 9, script: "a/1 b/1 c/1 take:1 silent:a/1 take:2", want: "a/1 b/1 -"},
		"HeardCounts":            {reason: "It counts again once it is answered, also beyond the workers.", workers: 1, spare: 9, script: "a/1 b/1 c/1 take:1 silent:a/1 take:1 heard:a/1 done:b/1 take:1 done:a/1 take:1", want: "a/1 b/1 - c/1"},
		"SilentAndDone":          {reason: "What ends silent counts no longer, and not twice.", workers: 1, spare: 9, script: "a/1 b/1 c/1 take:1 silent:a/1 done:a/1 take:2", want: "a/1 b/1 -"},
		"SilentTwice":            {reason: "A second call changes nothing.", workers: 1, spare: 9, script: "a/1 b/1 c/1 take:1 silent:a/1 away:a/1 heard:a/1 take:1 heard:a/1 take:1", want: "a/1 - -"},
		"SilentStrangers":        {reason: "What is not in flight is not silent.", workers: 1, spare: 9, script: "a/1 b/1 silent:a/1 heard:a/1 take:2", want: "a/1 -"},
		"NoSpare":                {reason: "There are no more goroutines than workers and spare ones.", workers: 1, spare: 1, script: "a/1 b/1 c/1 take:1 silent:a/1 take:1 silent:b/1 take:1", want: "a/1 b/1 -"},
		"SilentCountsForItsOwn":  {reason: "The limit of a cluster holds for what waits for it.", limit: 1, workers: 2, spare: 9, script: "a/1 a/2 take:1 silent:a/1 take:1", want: "a/1 -"},
		"AwayDoesNotCount":       {reason: "What waits for another cluster does not hold up the rest of its own.", limit: 1, workers: 2, spare: 9, script: "a/1 a/2 take:1 away:a/1 take:1", want: "a/1 a/2"},
		"BackFromAway":           {reason: "It counts against the limit again.", limit: 1, workers: 2, spare: 9, script: "a/1 a/2 take:1 away:a/1 heard:a/1 take:1", want: "a/1 -"},
		"HalfOfTheSpare":         {reason: "When half of the spare are in use, clusters with a silent request get no other.", workers: 2, spare: 4, script: "a/1 a/2 a/3 b/1 take:1 silent:a/1 take:1 silent:b/1 take:1 c/1 take:1", want: "a/1 b/1 - c/1"},
		"LessThanHalf":           {reason: "Before that they do.", workers: 2, spare: 5, script: "a/1 a/2 a/3 take:1 silent:a/1 take:1 silent:a/2 take:1", want: "a/1 a/2 a/3"},
		"SlowCount":              {reason: "Slow ones count, up to three quarters of the workers.", workers: 4, spare: 9, script: "a/1 b/1 c/1 d/1 take:3 at:1 take:2", want: "a/1 b/1 c/1 d/1 -"},
		"SlowBeyond":             {reason: "A quarter of the workers is left beside any number of slow ones.", workers: 4, spare: 9, script: "a/1 b/1 c/1 d/1 e/1 f/1 take:5 at:1 take:2 at:2 take:1", want: "a/1 b/1 c/1 d/1 - e/1 - f/1"},
		"SlowGetNoMore":          {reason: "That quarter is for clusters without a slow one.", workers: 4, spare: 9, script: "a/1 b/1 c/1 take:3 at:1 a/2 b/2 d/1 take:2", want: "a/1 b/1 c/1 d/1 -"},
		"SlowUntilDone":          {reason: "When a slow one ends, its cluster is served again.", workers: 4, spare: 9, script: "a/1 b/1 c/1 take:3 at:1 a/2 take:1 done:c/1 take:1", want: "a/1 b/1 c/1 - a/2"},
		"NotYetSlow":             {reason: "Before a second is over, nothing is slow.", workers: 4, spare: 9, script: "at:1 a/1 b/1 c/1 take:3 a/2 take:1", want: "a/1 b/1 c/1 a/2"},
		"PassedByKeepTheirTurn":  {reason: "A cluster that is passed by keeps its turn.", workers: 4, spare: 9, script: "a/1 b/1 c/1 take:3 at:1 a/2 d/1 d/2 take:1 done:b/1 take:2", want: "a/1 b/1 c/1 d/1 a/2 -"},
		"PassedByInBothBands":    {reason: "The background is served when nothing else can be.", workers: 4, spare: 9, script: "a/1 b/1 c/1 take:3 at:1 a/2 d/1:-1 take:1", want: "a/1 b/1 c/1 d/1"},
		"SilentAndSlow":          {reason: "What is slow and silent does not count; answered, it is slow.", workers: 4, spare: 20, script: "a/1 b/1 c/1 take:3 silent:a/1 silent:b/1 silent:c/1 at:2 d/1 e/1 f/1 g/1 h/1 take:3 heard:a/1 heard:b/1 heard:c/1 done:d/1 done:e/1 take:1 done:f/1 take:1", want: "a/1 b/1 c/1 d/1 e/1 f/1 - g/1"},
		"OneLeft":                {reason: "Of a few workers one at least is left.", workers: 2, spare: 9, script: "a/1 b/1 take:1 at:1 a/2 take:2", want: "a/1 b/1 -"},
		"Flows":                  {reason: "Flows take turns.", flows: true, script: "a/x-1 a/x-2 a/x-3 a/y-1 a/z-1 a/y-2 take:7", want: "a/x-1 a/y-1 a/z-1 a/x-2 a/y-2 a/x-3 -"},
		"FlowThatWasIdle":        {reason: "A request of an idle flow waits for one of each busy flow.", flows: true, script: "a/x-1 a/x-2 a/y-1 a/y-2 take:1 a/z-1 take:4", want: "a/x-1 a/y-1 a/x-2 a/z-1 a/y-2"},
		"FlowThatLoops":          {reason: "One request that is always back takes turns with a backlog.", flows: true, script: "a/x-1 a/x-2 a/x-3 a/y-1 take:2 done:a/y-1 a/y-1 take:2 done:a/y-1 a/y-1 take:2", want: "a/x-1 a/y-1 a/x-2 a/y-1 a/x-3 a/y-1"},
		"FlowsOfEachCluster":     {reason: "A flow of another cluster is another flow.", flows: true, script: "a/x-1 a/x-2 a/y-1 b/x-1 take:4", want: "a/x-1 b/x-1 a/y-1 a/x-2"},
		"FlowsOfEachPriority":    {reason: "The priority goes before the flows.", flows: true, script: "a/x-1 a/y-1 a/x-2:5 a/x-3:5 a/y-2:5 take:5", want: "a/x-2 a/y-2 a/x-3 a/x-1 a/y-1"},
		"FlowLosesItsFirst":      {reason: "A flow whose first request is raised keeps its turn.", flows: true, script: "a/x-1 a/x-2 a/y-1 a/x-1:5 take:3", want: "a/x-1 a/x-2 a/y-1"},
		"FlowLosesItsLast":       {reason: "What comes after the last one was raised is behind those that are left.", flows: true, script: "a/x-1 a/x-2 a/x-2:5 a/x-3 take:3", want: "a/x-2 a/x-1 a/x-3"},
		"FlowLosesOneBetween":    {reason: "One between others leaves them as they were.", flows: true, script: "a/x-1 a/x-2 a/x-3 a/x-2:5 take:3", want: "a/x-2 a/x-1 a/x-3"},
		"FlowHeld":               {reason: "What comes back while in flight goes to the end of its flow.", flows: true, script: "a/x-1 take:1 a/x-1 a/x-2 take:1 a/x-3 done:a/x-1 take:2", want: "a/x-1 a/x-2 a/x-3 a/x-1"},
		"FlowPurged":             {reason: "Nothing is left of a flow that was purged.", flows: true, script: "a/x-1 a/x-2 a/y-1 purge:a a/x-3 a/y-2 take:3", want: "a/x-3 a/y-2 -"},
		"FlowDelayed":            {reason: "A request joins its flow when its time has come.", flows: true, script: "a/x-1@5 a/x-2 a/x-3 a/y-1 at:5 take:4", want: "a/x-2 a/y-1 a/x-3 a/x-1"},
		"TargetsTakeTurns":       {reason: "What a cluster has to do in one target does not hold up what it has to do in another.", targets: true, script: "a/x.1 a/x.2 a/x.3 a/y.1 take:4", want: "a/x.1 a/y.1 a/x.2 a/x.3"},
		"ClustersAtATarget":      {reason: "Clusters take turns at a target.", targets: true, limit: 1, script: "a/x.1 a/x.2 a/x.3 b/x.1 b/x.2 take:2 done:a/x.1 take:2 done:b/x.1 take:2 done:a/x.2 take:1", want: "a/x.1 - b/x.1 - a/x.2 - b/x.2"},
		"LimitOfATarget":         {reason: "The limit is that of a target, whosever requests they are, and holds up no other.", targets: true, limit: 2, script: "a/x.1 b/x.1 c/x.1 a/y.1 a/x.2 take:4 done:b/x.1 take:1", want: "a/x.1 b/x.1 a/y.1 - c/x.1"},
		"OwnTarget":              {reason: "What is done in a cluster counts there, whosever it is.", targets: true, limit: 1, script: "a/b.1 b/b.1 b/x.1 take:3 done:a/b.1 take:1", want: "a/b.1 b/x.1 - b/b.1"},
		"SilentTarget":           {reason: "The limit of a target holds for what waits for it.", targets: true, limit: 1, workers: 2, spare: 9, script: "a/x.1 a/x.2 a/y.1 take:1 silent:a/x.1 take:2", want: "a/x.1 a/y.1 -"},
		"AwayFromTheTarget":      {reason: "What waits for its own cluster does not hold up the target.", targets: true, limit: 1, workers: 2, spare: 9, script: "a/x.1 a/x.2 take:1 away:a/x.1 take:1", want: "a/x.1 a/x.2"},
		"HalfOfTheSpareByTarget": {reason: "When half of the spare are in use, targets with a silent request get no other, and the rest goes on.", targets: true, workers: 2, spare: 4, script: "a/x.1 a/x.2 a/y.1 take:1 silent:a/x.1 take:1 silent:a/y.1 a/z.1 take:2", want: "a/x.1 a/y.1 a/z.1 -"},
		"SlowByTarget":           {reason: "The quarter of the workers is for targets without a slow one.", targets: true, workers: 4, spare: 9, script: "a/x.1 a/x.2 a/x.3 a/x.4 take:3 at:1 a/y.1 take:2", want: "a/x.1 a/x.2 a/x.3 a/y.1 -"},
		"PausedWithTargets":      {reason: "A pause parks what a cluster has to do anywhere, and nothing of others.", targets: true, script: "a/x.1 a/y.1 b/x.1 x/x.1 pause:a pause:x a/z.1 take:2 resume:a take:4", want: "b/x.1 - a/x.1 a/y.1 a/z.1 -"},
		"PurgedWithTargets":      {reason: "A purge drops what a cluster has to do anywhere, and nothing of others.", targets: true, limit: 1, script: "a/x.1 take:1 a/x.1 a/x.2 a/y.1 a/y.2@3 b/x.1 x/x.1 purge:a purge:x take:1 done:a/x.1 take:1 at:3 take:1", want: "a/x.1 - b/x.1 -"},
		"WeightWithTargets":      {reason: "A weight is that of the cluster, wherever its requests are worked on.", targets: true, script: "weigh2:a a/x.1 a/x.2 a/x.3 b/x.1 weigh3:x take:4", want: "a/x.1 a/x.2 b/x.1 a/x.3"},
		"FlowsAtATarget":         {reason: "Flows take turns in each target.", flows: true, targets: true, script: "a/x.f-1 a/x.f-2 a/x.g-1 a/y.f-1 take:4", want: "a/x.f-1 a/y.f-1 a/x.g-1 a/x.f-2"},
		"DoneOfAStranger":        {reason: "Done with what is not in flight changes nothing.", script: "a/1 done:a/1 take:1", want: "a/1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.share == 0 {
				tc.share = defaultBackgroundShare
			}
			o := newOrder[mcreconcile.Request](tc.limit, tc.share)
			o.flights.workers, o.flights.spare = tc.workers, tc.spare
			if tc.flows {
				o.flows = newFlows(flowOf)
			}
			if tc.targets {
				o.targets = newTargets(targetOf)
			}
			got := strings.Join(script(t, o, tc.script), " ")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTheOrderSaysWhenSomethingIsDueNext(t *testing.T) {
	cases := map[string]struct {
		reason, script string
		want           time.Duration // 0 for never
	}{
		"Nothing":        {"There is nothing to do.", "", 0},
		"Delayed":        {"A delayed request becomes ready.", "a/1@5 b/1@7", 5 * time.Second},
		"Blocked":        {"What is in flight becomes slow, and something waits for that.", "a/1 b/1 c/1 take:2", time.Second},
		"BlockedFirst":   {"Both: the earlier one counts.", "a/1 b/1 c/1 d/1@5 take:2", time.Second},
		"DelayedFirst":   {"Both: the earlier one counts.", "d/1@2 at:1 a/1 b/1 c/1 take:2 at:1", 2 * time.Second},
		"NothingWaits":   {"What is in flight becomes slow, but nothing waits for that.", "a/1 b/1 take:2", 0},
		"AnotherIsTaken": {"Something can be handed out right now.", "a/1 b/1 take:1", 0},
		"AllAreSlow":     {"No time frees what waits.", "a/1 b/1 a/2 take:2 at:1", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := newOrder[mcreconcile.Request](0, defaultBackgroundShare)
			o.flights.workers, o.flights.spare = 2, 9
			script(t, o, tc.script)
			var now time.Duration
			if strings.Contains(tc.script, "at:1") {
				now = time.Second
			}
			o.advance(now, func(*item[mcreconcile.Request]) {})
			next, more := o.due()
			if next != tc.want || more != (tc.want > 0) {
				t.Errorf("%s Next is %s, %t, want %s", tc.reason, next, more, tc.want)
			}
		})
	}
}

func TestNothingIsKeptOfAClusterThatIsPurged(t *testing.T) {
	o := newOrder[mcreconcile.Request](1, defaultBackgroundShare)
	script(t, o, "resume:a a/1 take:1 a/1 a/2 a/3@5 pause:a purge:a done:a/1")
	if len(o.clusters)+len(o.items)+len(o.flights.all)+o.delayed.Len()+o.ready > 0 {
		t.Errorf("left over: %d clusters, %d items, %d in flight, %d delayed, %d ready",
			len(o.clusters), len(o.items), len(o.flights.all), o.delayed.Len(), o.ready)
	}
}

func TestAClusterThatIsReleasedKeepsWhatItHasToDo(t *testing.T) {
	q := newQueue(t, Options[mcreconcile.Request]{})
	q.Pause("a")
	q.SetWeight("a", 3)
	q.Add(req("a/1"))
	q.Release("a")
	q.Release("b") // which nobody knows
	if r, _ := q.Get(); r != req("a/1") {
		t.Errorf("%v was handed out, want a/1", r)
	}
	q.Done(req("a/1"))
	if n := len(q.order.clusters); n > 0 {
		t.Errorf("%d clusters are known, want none", n)
	}
}

func TestAPurgeTellsWhenNothingIsInFlight(t *testing.T) {
	o := newOrder[mcreconcile.Request](0, defaultBackgroundShare)
	script(t, o, "a/1 a/2 b/1 take:3")
	drained := o.purge("a", func(*item[mcreconcile.Request]) {})
	isDrained := func() bool {
		select {
		case <-drained:
			return true
		default:
			return false
		}
	}
	o.done(req("a/1"))
	if isDrained() {
		t.Error("drained while a request is in flight")
	}
	o.done(req("a/2"))
	if !isDrained() {
		t.Error("not drained although nothing is in flight")
	}
}

// model is the order again, slow and obviously right: everything is a list that is searched from the start.
type model struct {
	limit          int
	share          int // one pick in so many is of the background
	workers, spare int
	items          []modelItem
	inFlight       []modelFlight
	paused         map[mcreconcile.ClusterName]bool
	weights        map[mcreconcile.ClusterName]int
	turns          [bands][]modelTurn               // whose turn it is
	flow           func(mcreconcile.Request) string // nil for no flows
	flows          map[modelFlows][]string          // whose turn it is
	target         func(mcreconcile.Request) mcreconcile.ClusterName
	targets        bool        // they may be others than the requests' own clusters
	lanes          []modelLane // that have requests, queued or in flight; the one that was served last comes last
	sequence       int
	streak         int
	now            time.Duration
}

// modelLane is what a cluster has to do in a target.
type modelLane struct{ name, target mcreconcile.ClusterName }

func (m *model) lane(r mcreconcile.Request) modelLane { return modelLane{r.ClusterName, m.target(r)} }

// modelFlows is what flows take turns in.
type modelFlows struct {
	lane     modelLane
	priority int
}

type modelTurn struct {
	lane modelLane
	left int // requests before the next lane's turn
}

type modelFlight struct {
	request           mcreconcile.Request
	since             time.Duration
	silent, elsewhere bool
}

type modelItem struct {
	request  mcreconcile.Request
	priority int
	sequence int
	readyAt  time.Duration // 0 for ready
}

func (m *model) find(r mcreconcile.Request) int {
	return slices.IndexFunc(m.items, func(i modelItem) bool { return i.request == r })
}

func (m *model) add(r mcreconcile.Request, priority int, now, at time.Duration) {
	defer m.settle()
	if at <= now {
		at = 0
	}
	k := m.find(r)
	if k < 0 {
		m.sequence++
		m.items = append(m.items, modelItem{r, priority, m.sequence, at})
		if !slices.Contains(m.lanes, m.lane(r)) {
			m.lanes = append(m.lanes, m.lane(r))
		}
		return
	}
	i := &m.items[k]
	wasReady := i.readyAt == 0
	if wasReady && priority > i.priority || !wasReady && at == 0 {
		m.sequence++
		i.sequence = m.sequence
	}
	moved := bandOf(max(i.priority, priority)) != bandOf(i.priority) || priority > i.priority
	if wasReady && moved {
		// It leaves its heap for a moment, and with the last item goes the cluster's turn.
		old := m.items
		m.items = slices.Delete(slices.Clone(m.items), k, k+1)
		m.settle()
		m.items = old
		i = &m.items[k]
	}
	i.priority = max(i.priority, priority)
	i.readyAt = min(i.readyAt, at)
}

func (m *model) advance(now time.Duration) {
	m.now = now
	due := []int{}
	for k, i := range m.items {
		if i.readyAt > 0 && i.readyAt <= now {
			due = append(due, k)
		}
	}
	slices.SortStableFunc(due, func(a, b int) int { return int(m.items[a].readyAt - m.items[b].readyAt) })
	for _, k := range due {
		m.sequence++
		m.items[k].readyAt, m.items[k].sequence = 0, m.sequence
		m.settle()
	}
}

// flying counts the flights in a target for which something holds.
func (m *model) flying(target mcreconcile.ClusterName, is func(modelFlight) bool) (n int) {
	for _, f := range m.inFlight {
		if m.target(f.request) == target && is(f) {
			n++
		}
	}
	return n
}

func (m *model) slow(f modelFlight) bool { return m.now >= f.since+time.Second }

// count says how many flights count, how many of those are slow, and how many do not count.
func (m *model) count() (counting, slow, beside int) {
	for _, f := range m.inFlight {
		switch {
		case f.silent:
		case m.slow(f):
			slow++
		default:
			counting++
		}
	}
	counting += min(slow, m.quarters())
	return counting, slow, len(m.inFlight) - counting
}

// quarters is three quarters of the workers, but leaves at least one.
func (m *model) quarters() int { return m.workers - max(m.workers/4, 1) }

// admits reports whether there may be one more flight in a target.
func (m *model) admits(target mcreconcile.ClusterName) bool {
	if m.workers == 0 {
		return true
	}
	counting, slow, beside := m.count()
	if counting >= m.workers || len(m.inFlight) >= m.workers+m.spare {
		return false
	}
	if slow >= m.quarters() && m.flying(target, m.slow) > 0 {
		return false
	}
	halfUsed := m.spare > 0 && beside*2 >= m.spare
	return !halfUsed || m.flying(target, func(f modelFlight) bool { return f.silent }) == 0
}

func (m *model) flies(r mcreconcile.Request) bool {
	return slices.ContainsFunc(m.inFlight, func(f modelFlight) bool { return f.request == r })
}

// best returns the item of a lane and band that would go next.
func (m *model) best(lane modelLane, b band) (best int) {
	best = -1
	for k, i := range m.items {
		if m.lane(i.request) != lane || bandOf(i.priority) != b || i.readyAt > 0 || m.flies(i.request) {
			continue
		}
		if m.flow != nil && m.flows[modelFlows{lane, i.priority}][0] != m.flow(i.request) {
			continue
		}
		if best < 0 || i.priority > m.items[best].priority ||
			i.priority == m.items[best].priority && i.sequence < m.items[best].sequence {
			best = k
		}
	}
	return best
}

// settle has each lane that can be served wait for its turn, and no other.
func (m *model) settle() {
	m.settleFlows()
	for b := range bands {
		can := func(lane modelLane) bool {
			there := m.flying(lane.target, func(f modelFlight) bool { return !f.elsewhere })
			return !m.paused[lane.name] && (m.limit == 0 || there < m.limit) && m.best(lane, b) >= 0
		}
		m.turns[b] = slices.DeleteFunc(m.turns[b], func(t modelTurn) bool { return !can(t.lane) })
		for _, lane := range m.lanes {
			has := slices.ContainsFunc(m.turns[b], func(t modelTurn) bool { return t.lane == lane })
			if can(lane) && !has {
				m.turns[b] = append(m.turns[b], modelTurn{lane, m.weight(lane)})
			}
		}
	}
}

// settleFlows has each flow that has something to do wait for its turn, and no other.
func (m *model) settleFlows() {
	if m.flow == nil {
		return
	}
	busy := map[modelFlows]map[string]bool{}
	for _, i := range m.items {
		if i.readyAt > 0 || m.flies(i.request) {
			continue
		}
		in, flow := modelFlows{m.lane(i.request), i.priority}, m.flow(i.request)
		if busy[in] == nil {
			busy[in] = map[string]bool{}
		}
		busy[in][flow] = true
		if !slices.Contains(m.flows[in], flow) {
			m.flows[in] = append(m.flows[in], flow)
		}
	}
	for in := range m.flows {
		m.flows[in] = slices.DeleteFunc(m.flows[in], func(flow string) bool { return !busy[in][flow] })
	}
}

// beginFlows makes requests those of flows, or not.
func (m *model) beginFlows(o *order[mcreconcile.Request], are bool) {
	if are {
		m.flow, m.flows = flowOf, map[modelFlows][]string{}
		o.flows = newFlows(flowOf)
	}
}

// beginTargets has requests worked on in other clusters, or in their own.
func (m *model) beginTargets(o *order[mcreconcile.Request], are bool) {
	m.target, m.targets = mcreconcile.Request.Cluster, are
	if are {
		m.target = targetOf
		o.targets = newTargets(targetOf)
	}
}

// forgetLanes forgets the lanes that have nothing to do.
func (m *model) forgetLanes() {
	m.lanes = slices.DeleteFunc(m.lanes, func(lane modelLane) bool {
		return !slices.ContainsFunc(m.items, func(i modelItem) bool { return m.lane(i.request) == lane }) &&
			!slices.ContainsFunc(m.inFlight, func(f modelFlight) bool { return m.lane(f.request) == lane })
	})
}

// kept counts the flows, lanes and targets that there are. Without targets, lanes are the clusters' own.
type kept struct{ Flows, Lanes, Targets int }

func keptBy(o *order[mcreconcile.Request]) kept {
	return kept{len(o.flows.last), len(o.targets.lanes), len(o.targets.all)}
}

func (m *model) kept() kept {
	if !m.targets {
		return kept{Flows: m.busyFlows()}
	}
	in := map[mcreconcile.ClusterName]bool{}
	for _, lane := range m.lanes {
		in[lane.target] = true
	}
	return kept{m.busyFlows(), len(m.lanes), len(in)}
}

func (m *model) busyFlows() (n int) {
	for _, flows := range m.flows {
		n += len(flows)
	}
	return n
}

// endTurn lets the other flows have their turn.
func (m *model) endTurn(i modelItem) {
	if m.flow != nil {
		in := modelFlows{m.lane(i.request), i.priority}
		m.flows[in] = append(m.flows[in][1:], m.flows[in][0])
	}
}

func (m *model) weight(lane modelLane) int { return max(1, m.weights[lane.name]) }

func (m *model) weigh(name mcreconcile.ClusterName, weight int) {
	m.weights[name] = weight
	for b := range bands {
		for k, t := range m.turns[b] {
			if t.lane.name == name {
				m.turns[b][k].left = min(t.left, weight)
			}
		}
	}
}

func (m *model) take() (string, bool) {
	admitted := func(t modelTurn) bool { return m.admits(t.lane.target) }
	next := [bands]int{slices.IndexFunc(m.turns[fresh], admitted), slices.IndexFunc(m.turns[background], admitted)}
	b := fresh
	switch {
	case next[fresh] < 0 && next[background] < 0:
		return "", false
	case next[background] < 0:
	case next[fresh] < 0 || m.streak == m.share-1:
		b, m.streak = background, 0
	default:
		m.streak++
	}
	turn := &m.turns[b][next[b]]
	lane := turn.lane
	k := m.best(lane, b)
	r := m.items[k].request
	m.endTurn(m.items[k])
	m.items = slices.Delete(m.items, k, k+1)
	m.inFlight = append(m.inFlight, modelFlight{request: r, since: m.now})
	if turn.left--; turn.left <= 0 {
		m.turns[b] = append(slices.Delete(m.turns[b], next[b], next[b]+1), modelTurn{lane, m.weight(lane)})
	}
	m.lanes = append(slices.DeleteFunc(m.lanes, func(l modelLane) bool { return l == lane }), lane)
	m.settle()
	return written(r), true
}

func (m *model) done(r mcreconcile.Request) {
	m.inFlight = slices.DeleteFunc(m.inFlight, func(f modelFlight) bool { return f.request == r })
	if k := m.find(r); m.flow != nil && k >= 0 {
		m.sequence++
		m.items[k].sequence = m.sequence
	}
	m.forgetLanes()
	m.settle()
}

func (m *model) setSilent(k int, silent, elsewhere bool) {
	f := &m.inFlight[k]
	if f.silent != silent {
		f.silent, f.elsewhere = silent, silent && elsewhere
	}
	m.settle()
}

func (m *model) purge(name mcreconcile.ClusterName) {
	m.items = slices.DeleteFunc(m.items, func(i modelItem) bool { return i.request.ClusterName == name })
	delete(m.paused, name)
	delete(m.weights, name)
	m.forgetLanes()
	m.settle()
}

// TestTheOrderIsThatOfTheModel compares the order with the model over random operations. It takes a second, or as long
// as the environment variable MCQUEUE_MODEL says.
func TestTheOrderIsThatOfTheModel(t *testing.T) {
	budget := time.Second
	if given := os.Getenv("MCQUEUE_MODEL"); given != "" {
		var err error
		if budget, err = time.ParseDuration(given); err != nil {
			t.Fatal(err)
		}
	}
	runs := 0
	for start := time.Now(); time.Since(start) < budget; runs++ {
		compareWithModel(t, rand.Uint64(), 300)
	}
	t.Logf("%d random histories of 300 operations", runs)
}

func FuzzOrder(f *testing.F) {
	for seed := range uint64(16) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { compareWithModel(t, seed, 1000) })
}

// purgeOrWeigh purges a cluster, or sets its weight, or does neither.
func purgeOrWeigh(o *order[mcreconcile.Request], m *model, name mcreconcile.ClusterName, dice int) (what string) {
	switch {
	case dice < 2:
		o.purge(name, func(*item[mcreconcile.Request]) {})
		m.purge(name)
		return "purge " + string(name)
	case dice < 6:
		o.weigh(name, dice-1)
		m.weigh(name, dice-1)
		return fmt.Sprintf("weigh %s: %d", name, dice-1)
	}
	return ""
}

func compareWithModel(t *testing.T, seed uint64, operations int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	limit, share := rng.IntN(4), 1+rng.IntN(10)
	o := newOrder[mcreconcile.Request](limit, 1/float64(share))
	o.flights.workers, o.flights.spare = rng.IntN(9), rng.IntN(9)
	m := &model{
		limit: limit, share: share, workers: o.flights.workers, spare: o.flights.spare,
		paused: map[mcreconcile.ClusterName]bool{}, weights: map[mcreconcile.ClusterName]int{},
	}
	m.beginFlows(o, rng.IntN(2) == 0)
	m.beginTargets(o, rng.IntN(2) == 0)
	clusters := []mcreconcile.ClusterName{"a", "b", "c", "d"}[:1+rng.IntN(4)]
	var now time.Duration
	for step := range operations {
		name := clusters[rng.IntN(len(clusters))]
		r := req(fmt.Sprintf("%s/%d", name, rng.IntN(6)))
		what := ""
		if rng.IntN(20) == 0 {
			now += time.Duration(rng.IntN(1500)) * time.Millisecond // and the queue is late to advance
		}
		switch op := rng.IntN(23); {
		case op < 8:
			priority := []int{0, 0, 0, 5, 9, -1, -100}[rng.IntN(7)]
			at := now
			if rng.IntN(3) == 0 {
				// No two times are equal: which of two goes first then is nobody's business.
				at += time.Duration(rng.IntN(10))*time.Second + time.Duration(step+1)
			}
			what = fmt.Sprintf("add %s priority %d at %s", written(r), priority, at)
			o.add(r, priority, now, at)
			m.add(r, priority, now, at)
		case op < 14:
			m.now = now
			want, wantOK := m.take()
			i, ok := o.take(now)
			got := ""
			if ok {
				got = written(i.request)
			}
			if ok != wantOK || got != want {
				t.Fatalf("seed %d, step %d: took %q, want %q", seed, step, got, want)
			}
			what = "take " + got
		case op < 17 && len(m.inFlight) > 0:
			r = m.inFlight[rng.IntN(len(m.inFlight))].request
			what = "done " + written(r)
			o.done(r)
			m.done(r)
		case op == 17:
			what = "pause or resume " + string(name)
			if m.paused[name] {
				o.resume(name)
				delete(m.paused, name)
			} else {
				o.pause(name)
				m.paused[name] = true
			}
			m.settle()
		case op == 18:
			now += time.Duration(rng.IntN(3000)) * time.Millisecond
			what = fmt.Sprintf("it is %s", now)
			o.advance(now, func(*item[mcreconcile.Request]) {})
			m.advance(now)
		case op == 19:
			what = purgeOrWeigh(o, m, name, rng.IntN(12))
		case op >= 20 && len(m.inFlight) > 0:
			k := rng.IntN(len(m.inFlight))
			silent, elsewhere := rng.IntN(3) > 0, rng.IntN(3) == 0
			r = m.inFlight[k].request
			what = fmt.Sprintf("%s silent: %t, elsewhere: %t", written(r), silent, elsewhere)
			if silent {
				o.yield(r, elsewhere)
			} else {
				o.reclaim(r)
			}
			m.setSilent(k, silent, elsewhere)
		}
		if want, got := m.kept(), keptBy(o); got != want {
			t.Fatalf("seed %d, step %d (%s): what is kept is %+v, want %+v", seed, step, what, got, want)
		}
		counting, _, beside := m.count()
		if m.workers > 0 && (o.flights.counting() != counting || o.flights.beside() != beside) {
			t.Fatalf("seed %d, step %d (%s): %d count and %d do not, want %d and %d",
				seed, step, what, o.flights.counting(), o.flights.beside(), counting, beside)
		}
		ready := 0
		for _, i := range m.items {
			if i.readyAt == 0 {
				ready++
			}
		}
		depth := 0
		for _, c := range o.clusters {
			depth += c.depth
		}
		if depth != ready {
			t.Fatalf("seed %d, step %d (%s): the clusters' depths add up to %d, want %d", seed, step, what, depth, ready)
		}
		if o.ready != ready || len(o.items) != len(m.items) || len(o.flights.all) != len(m.inFlight) {
			t.Fatalf("seed %d, step %d (%s): %d ready, %d queued, %d in flight, want %d, %d, %d",
				seed, step, what, o.ready, len(o.items), len(o.flights.all), ready, len(m.items), len(m.inFlight))
		}
	}
}
