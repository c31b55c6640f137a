package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

// maker makes tokens that live for an hour, and counts them.
type maker struct {
	made atomic.Int32
	err  atomic.Pointer[error]
	hold atomic.Pointer[chan struct{}]
}

func (m *maker) mint(ctx context.Context) (Token, error) {
	n := m.made.Add(1)
	made := time.Now()
	if hold := m.hold.Load(); hold != nil {
		select {
		case <-*hold:
		case <-ctx.Done():
			return Token{}, ctx.Err()
		}
	}
	if err := m.err.Load(); err != nil {
		return Token{}, *err
	}
	return Token{value: new(fmt.Sprintf("token-%d", n)), Made: made, Expires: made.Add(time.Hour)}, nil
}

func (m *maker) fail(err error) { m.err.Store(&err) }

func (m *maker) works() { m.err.Store(nil) }

// newSource returns a source of a maker's tokens, in a bubble of a test.
func newSource(t *testing.T) (*Source, *maker) {
	t.Helper()
	sources, m := NewSources(nil), &maker{}
	t.Cleanup(sources.Close)
	return &Source{mint: m.mint, begin: sources.begin, keep: sources.keep, turn: sources.turn, pauses: retry.Pauses(retry.Longest)}, m
}

// want fails unless the source gives the n-th token.
func want(t *testing.T, s *Source, n int) Token {
	t.Helper()
	token, err := s.Token(t.Context())
	if err != nil || token.Value() != fmt.Sprintf("token-%d", n) {
		t.Errorf("at %s the source gives %q and the error %v, want token %d", t.Name(), token.Value(), err, n)
	}
	return token
}

func TestATokenIsMadeWhenItIsFirstNeededAndOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newSource(t)
		synctest.Wait()
		if m.made.Load() != 0 {
			t.Error("a token was made that nobody needs")
		}
		for range 10 {
			go want(t, s, 1)
		}
		synctest.Wait()
		want(t, s, 1)
		if m.made.Load() != 1 {
			t.Errorf("%d tokens were made, want 1", m.made.Load())
		}
	})
}

func TestATokenIsRenewedBesideTheRequestsFromFourFifthsOfItsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newSource(t)
		want(t, s, 1)
		<-time.After(48*time.Minute - time.Second)
		want(t, s, 1)
		synctest.Wait()
		if m.made.Load() != 1 {
			t.Error("it is renewed too early")
		}
		hold := make(chan struct{})
		m.hold.Store(&hold)
		<-time.After(4 * time.Minute)
		want(t, s, 1) // does not wait for the next
		want(t, s, 1)
		close(hold)
		synctest.Wait()
		want(t, s, 2)
		if m.made.Load() != 2 {
			t.Errorf("%d tokens were made, want 2", m.made.Load())
		}
	})
}

func TestATokenOfShortLifeIsUsedForAMinute(t *testing.T) {
	if keep := keepFor(10 * time.Second); keep != time.Minute {
		t.Errorf("a token of 10 s is used for %s, want a minute", keep)
	}
}

func TestATokenIsUsedForAsLongAsNoOtherIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newSource(t)
		want(t, s, 1)
		m.fail(errors.New("the hub is down"))
		for range 60 {
			<-time.After(time.Minute - time.Nanosecond)
			want(t, s, 1)
		}
		synctest.Wait()
		<-time.After(time.Minute)
		if _, err := s.Token(t.Context()); err == nil || !strings.Contains(err.Error(), "the hub is down") {
			t.Errorf("with a token that has expired, the error is %v, want the last one", err)
		}
		if made := m.made.Load(); made > 20 {
			t.Errorf("%d attempts were made in 12 minutes of a request a minute", made)
		}
		m.works()
		<-time.After(retry.Longest)
		if _, err := s.Token(t.Context()); err != nil {
			t.Errorf("it has not healed: %v", err)
		}
	})
}

func TestAttemptsThatFailAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newSource(t)
		m.fail(errors.New("the hub is down"))
		for range 600 {
			_ = s.Refresh(t.Context())
			<-time.After(100 * time.Millisecond)
		}
		if made := m.made.Load(); made < 8 || made > 15 {
			t.Errorf("%d attempts were made in a minute, want about 11", made)
		}
	})
}

func TestVeryManyAttemptsThatFailLeaveRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, seconds = 1000, 120
		sources, m, healthy := NewSources(nil), &maker{}, &maker{}
		t.Cleanup(sources.Close)
		from := func(m *maker) *Source {
			return &Source{mint: m.mint, begin: sources.begin, keep: sources.keep, turn: sources.turn, pauses: retry.Pauses(retry.Longest)}
		}
		m.fail(errors.New("there is no such account"))
		all := make([]*Source, 0, many)
		for range many {
			all = append(all, from(m))
		}
		for n := range seconds {
			for _, s := range all {
				_ = s.Refresh(t.Context())
			}
			if n%10 == 0 { // it has never had one, so it is asked for at once
				if token, err := from(healthy).Token(t.Context()); err != nil || token.Value() == "" {
					t.Errorf("a source of another access gives the error %v", err)
				}
			}
			<-time.After(time.Second)
		}
		if made := m.made.Load(); made < 2*many || made > many+retriesPerSecond*(seconds+1) {
			t.Errorf("%d attempts of %d sources in %d s", made, many, seconds)
		}
		m.works()
		<-time.After(many / retriesPerSecond * time.Second)
		for _, s := range all {
			if err := s.Refresh(t.Context()); err != nil {
				t.Fatalf("it has not healed: %v", err)
			}
		}
	})
}

func TestATokenThatIsNoLongerAcceptedIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSource(t)
		first := want(t, s, 1)
		s.answered(first, true)
		s.answered(first, false)
		second := want(t, s, 2)
		s.answered(first, false) // of a request that was under way
		s.answered(second, true)
		<-time.After(time.Minute)
		s.answered(first, false) // of another, that was slow
		want(t, s, 2)
	})
}

func TestTokensThatAreNeverAcceptedMakeNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newSource(t)
		for range 600 {
			token, err := s.Token(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.answered(token, false)
			<-time.After(100 * time.Millisecond)
		}
		if made := m.made.Load(); made < 8 || made > 15 {
			t.Errorf("%d tokens were made in a minute, want about 11", made)
		}
	})
}

func TestTokensThatAreAcceptedAndRefusedInTurnMakeNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newSource(t)
		for range 600 {
			token, err := s.Token(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s.answered(token, true)
			s.answered(token, false)
			<-time.After(100 * time.Millisecond)
		}
		if made := m.made.Load(); made < 8 || made > 15 {
			t.Errorf("%d tokens were made in a minute, want about 11", made)
		}
		<-time.After(retry.Longest)
		token, err := s.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		made := m.made.Load()
		for range 2 { // it is well again, and the next that is refused is replaced at once
			s.answered(token, true)
			<-time.After(retry.Longest)
		}
		s.answered(token, false)
		want(t, s, int(made)+1)
	})
}

func TestAWaitForATokenEndsWithItsRequestAndNotWithTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := newSource(t)
		hold := make(chan struct{})
		m.hold.Store(&hold)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Refresh(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v, want that of the context", err)
		}
		close(hold)
		want(t, s, 1)
	})
}

func TestNothingIsMadeAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sources, m := NewSources(nil), &maker{}
		s := &Source{mint: m.mint, begin: sources.begin, keep: sources.keep, turn: sources.turn, pauses: retry.Pauses(retry.Longest)}
		other := &Source{mint: m.mint, begin: sources.begin, keep: sources.keep, turn: sources.turn, pauses: retry.Pauses(retry.Longest)}
		want(t, s, 1)
		hold := make(chan struct{})
		m.hold.Store(&hold)
		go func() { _ = other.Refresh(t.Context()) }()
		synctest.Wait()
		sources.Close() // does not wait for the hub
		want(t, s, 1)
		if _, err := other.Token(t.Context()); err == nil {
			t.Error("a token was made")
		}
		<-time.After(2 * time.Hour)
		if _, err := s.Token(t.Context()); err == nil {
			t.Error("a token that has expired is used")
		}
	})
}

type recorded struct{ requests []*http.Request }

func (r *recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	r.requests = append(r.requests, req)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestATokenIsSentToItsOwnServerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSource(t)
		sent := &recorded{}
		a := &authorizer{sent, s, "east.example.com:6443"}
		for address, want := range map[string]string{
			"https://east.example.com:6443/api": "Bearer token-1",
			"https://west.example.com:6443/api": "",
			"https://east.example.com/api":      "",
			"http://east.example.com:6443/api":  "",
		} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := a.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if got := sent.requests[len(sent.requests)-1].Header.Get("Authorization"); got != want {
				t.Errorf("%s is sent %q, want %q", address, got, want)
			}
			if req.Header.Get("Authorization") != "" {
				t.Error("the caller's request was changed")
			}
		}
	})
}

func TestAnAudienceIsOfOneServerOneCAAndOneName(t *testing.T) {
	one := Audience("https://east.example.com", []byte("a"), "")
	for _, other := range []string{
		Audience("https://west.example.com", []byte("a"), ""), Audience("https://east.example.com", []byte("b"), ""),
		Audience("https://east.example.com", nil, ""), Audience("https://east.example.com", []byte("a"), "other.example.com"),
	} {
		if other == one {
			t.Errorf("two have the audience %q", one)
		}
	}
}

func TestATokenDoesNotShowItsValue(t *testing.T) {
	token := Token{value: new("s3cret"), Made: time.Now(), Expires: time.Now().Add(time.Hour)}
	type holder struct {
		Token  Token
		hidden Token
		More   []any
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d"} {
		for _, shown := range []any{token, &token, holder{token, token, []any{token, &token}}} {
			if text := fmt.Sprintf(format, shown); strings.Contains(text, "s3cret") {
				t.Errorf("%s shows %s", format, text)
			}
		}
	}
}
