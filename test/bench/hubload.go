package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fleet-runtime/fleet-runtime/test/bench/measure"
)

// hubLoad is what the hub has of replicas: requests a second, watches of Leases, and events a second that these are told.
type hubLoad struct{ writes, reads, all, watches, events float64 }

// hubLoad measures. The requests are those that the replicas have counted themselves, as the API server's count has its own among them.
// Of watches, which are the replicas' alone, the API server tells.
func (r *replicas) hubLoad(ctx context.Context, during time.Duration) (hubLoad, error) {
	_, told, err := r.w.watches(ctx)
	if err != nil {
		return hubLoad{}, err
	}
	before, err := costs(r.all)
	if err != nil {
		return hubLoad{}, err
	}
	if err := pass(ctx, during); err != nil {
		return hubLoad{}, err
	}
	after, err := costs(r.all)
	if err != nil {
		return hubLoad{}, err
	}
	watches, toldNow, err := r.w.watches(ctx)
	load := hubLoad{watches: watches, events: (toldNow - told) / during.Seconds()}
	for i := range after {
		load.add(after[i].Requests.Less(before[i].Requests), time.Duration(after[i].Now-before[i].Now))
	}
	return load, err
}

func (l *hubLoad) add(sent measure.Requests, during time.Duration) {
	l.writes += float64(sent.LeaseWrites) / during.Seconds()
	l.reads += float64(sent.LeaseReads) / during.Seconds()
	l.all += float64(sent.All) / during.Seconds()
}

// watches returns how many watches of Leases the API server has now, and how many events it has told such watches since it began.
func (w *world) watches(ctx context.Context) (now, told float64, err error) {
	text, err := w.metrics(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("reading the metrics of the API server: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		series, number, _ := strings.Cut(lines.Text(), " ")
		name, labels, _ := strings.Cut(series, "{")
		value, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil || !strings.Contains(labels, `resource="leases"`):
		case name == "apiserver_longrunning_requests" && strings.Contains(labels, `verb="WATCH"`):
			now += value
		case name == "apiserver_watch_events_total":
			told += value
		}
	}
	return now, told, nil
}

func (w *world) metrics(ctx context.Context) ([]byte, error) {
	c, err := rest.HTTPClientFor(w.config)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.config.Host+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return text, errors.Join(err, answer.Body.Close())
}
