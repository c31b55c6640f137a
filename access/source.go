package access

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/fleet-runtime/fleet-runtime/internal/retry"
)

const (
	// renewAfter is the share of a token's life after which another one is asked for, and renewJitter what is added at random,
	// so that the tokens of many clusters are not renewed in step.
	renewAfter  = 0.8
	renewJitter = 0.05
	// renewFloor is how long a token is used at least, whatever was granted.
	renewFloor = time.Minute
)

// Source gives the tokens of one access, one after the other. The first is made when it is needed. From 80 % of what was granted
// another one is made beside the requests, which go on with the one that there is. It is safe for concurrent use.
type Source struct {
	mint func(ctx context.Context) (Token, error)
	told func(Token)
	// begin runs what mints in the background. It returns false once nothing may begin.
	begin func(func(ctx context.Context)) bool
	keep  func(granted time.Duration) time.Duration
	// turn returns how long to wait at least after an attempt that was in vain. It does not wait.
	turn func(now time.Time) time.Duration

	mu        sync.Mutex // guards what follows; nothing is asked for while it is held
	token     Token
	renewAt   time.Time
	refused   bool          // the server does not accept the token
	accepted  bool          // the server has accepted it
	refusedAt time.Time     // when the server last refused this token, or one before
	err       error         // of the last attempt
	flight    chan struct{} // of the attempt under way, closed when it ends; nil if there is none
	next      time.Time     // no attempt begins before
	pauses    wait.Backoff
}

// ErrClosed is why a source makes no token any more.
var ErrClosed = errors.New("no more tokens are made, since the program ends")

// Token returns a token that is worth using, and waits for one if there is none. An error is that of the last attempt to get
// one; the next is made after a pause.
func (s *Source) Token(ctx context.Context) (Token, error) {
	for {
		token, flight, err := s.look()
		if flight == nil {
			return token, err
		}
		select {
		case <-flight:
		case <-ctx.Done():
			return Token{}, context.Cause(ctx)
		}
	}
}

// look returns a token, an error, or what to wait for.
func (s *Source) look() (Token, chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	usable := now.Before(s.token.Expires) && !s.refused
	if !usable || now.After(s.renewAt) {
		s.renewLocked(now)
	}
	switch {
	case usable:
		return s.token, nil, nil
	case s.flight != nil:
		return Token{}, s.flight, nil
	case s.err != nil:
		return Token{}, nil, s.err
	case now.Before(s.token.Expires): // the server has refused it: it goes on being sent, so that the answers of the server show that
		return s.token, nil, nil
	}
	return Token{}, nil, ErrClosed
}

// renewLocked begins an attempt, unless there is one, or it is too early.
func (s *Source) renewLocked(now time.Time) {
	if s.flight != nil || now.Before(s.next) {
		return
	}
	flight := make(chan struct{})
	if !s.begin(func(ctx context.Context) { s.renew(ctx, flight) }) {
		return
	}
	s.flight = flight
}

func (s *Source) renew(ctx context.Context, flight chan struct{}) {
	token, err := s.mint(ctx)
	s.mu.Lock()
	s.err, s.flight = err, nil
	if err != nil {
		s.pauseLocked()
	} else {
		s.takeLocked(token)
	}
	s.mu.Unlock()
	close(flight)
	if err == nil && s.told != nil {
		s.told(token)
	}
}

func (s *Source) takeLocked(token Token) {
	s.token, s.refused, s.accepted = token, false, false
	s.renewAt = token.Made.Add(s.keep(token.granted()))
}

// keepFor returns how long a token is used before another one is asked for.
func keepFor(granted time.Duration) time.Duration {
	share := renewAfter + renewJitter*rand.Float64() //nolint:gosec // no secret comes of it
	return max(renewFloor, time.Duration(share*float64(granted)))
}

// answered notes whether the server has accepted a token. After one that it does not accept any more, another is made at once.
// After one that it has never accepted there is a pause, since the next may be no better. So there is after one that it refuses soon
// after it has refused another: some servers behind one address accept a token, and others refuse each.
func (s *Source) answered(token Token, accepted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	again := now.Sub(s.refusedAt) < retry.Longest
	switch {
	case !s.token.is(token):
	case accepted:
		s.accepted, s.refused = true, false
		if !again {
			s.pauses = retry.Pauses(retry.Longest)
		}
	case !s.refused:
		s.refused, s.refusedAt = true, now
		if (again || !s.accepted) && !now.Before(s.next) {
			s.pauseLocked()
		}
	}
}

// pauseLocked puts off the next attempt after one that was in vain: the longer, the more there were, and the more others there are.
func (s *Source) pauseLocked() {
	now := time.Now()
	s.next = now.Add(max(s.pauses.Step(), s.turn(now)))
}

// Refresh waits for another token if the server has refused the one that there is.
func (s *Source) Refresh(ctx context.Context) error {
	_, err := s.Token(ctx)
	return err
}

// Expires returns when the token expires, zero if there is none.
func (s *Source) Expires() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token.Expires
}
