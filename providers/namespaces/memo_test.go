package namespaces

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestAValueIsMadeOnceForAllWhoAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memo[string, int]
		made, release := 0, make(chan struct{})
		results := make(chan int)
		for range 100 {
			go func() {
				value, err := m.get(t.Context(), "key", func() (int, error) {
					made++
					<-release
					return 42, nil
				})
				if err != nil {
					t.Error(err)
				}
				results <- value
			}()
		}
		synctest.Wait()
		close(release)
		for range 100 {
			if value := <-results; value != 42 {
				t.Errorf("got %d, want 42", value)
			}
		}
		if made != 1 {
			t.Errorf("the value was made %d times", made)
		}
	})
}

func TestAFailureCountsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memo[string, int]
		tries := 0
		try := func() (int, error) {
			tries++
			if tries == 1 {
				return 0, errors.New("the first fails")
			}
			return tries, nil
		}
		for range 3 {
			if _, err := m.get(t.Context(), "key", try); err == nil || tries != 1 {
				t.Fatalf("got %v after %d tries, want the failure of the first", err, tries)
			}
		}
		<-time.After(failureLife + 1)
		for range 3 {
			if value, err := m.get(t.Context(), "key", try); err != nil || value != 2 {
				t.Fatalf("got %d, %v, want 2", value, err)
			}
		}
	})
}

func TestWhoWaitsForAValueHeedsTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m memo[string, int]
		release := make(chan struct{})
		go func() {
			_, _ = m.get(t.Context(), "key", func() (int, error) {
				<-release
				return 0, nil
			})
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.get(ctx, "key", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the end of the context", err)
		}
		close(release)
	})
}
