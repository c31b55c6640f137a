package sweep

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestListsProofsAndQuestionsShareTheLimitEvenly, however many there are of either, and have what the others leave.
func TestListsProofsAndQuestionsShareTheLimitEvenly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ lists, proofs, questions, wantLists, wantProofs, wantQuestions int64 }{
		"both, and many proofs": {lists: 1, proofs: 32, wantLists: 600, wantProofs: 600},
		"both, and many lists":  {lists: 32, proofs: 1, wantLists: 600, wantProofs: 600},
		"and many questions":    {lists: 1, proofs: 1, questions: 32, wantLists: 400, wantProofs: 400, wantQuestions: 400},
		"no proofs":             {lists: 1, questions: 32, wantLists: 600, wantQuestions: 600},
		"lists alone":           {lists: 16, wantLists: 1200},
		"proofs alone":          {proofs: 16, wantProofs: 1200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLimit(20)
				ctx, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				begin := func(n int64, wait func(context.Context) error) *atomic.Int64 {
					var done atomic.Int64
					for range n {
						all.Go(func() {
							for wait(ctx) == nil {
								done.Add(1)
							}
						})
					}
					return &done
				}
				lists, proofs, questions := begin(tc.lists, l.waitToList), begin(tc.proofs, l.Wait), begin(tc.questions, l.waitAfterQuestion)
				<-time.After(time.Minute)
				cancel()
				all.Wait()
				for what, n := range map[string]struct{ got, want int64 }{
					"lists": {lists.Load(), tc.wantLists}, "proofs": {proofs.Load(), tc.wantProofs}, "questions": {questions.Load(), tc.wantQuestions},
				} {
					if n.got < n.want-5 || n.got > n.want+5 {
						t.Errorf("%d %s in a minute, want some %d", n.got, what, n.want)
					}
				}
			})
		})
	}
}
