package dataproxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/swampd/swampd/messages"
)

const (
	firstPause   = 50 * time.Millisecond // between two tries, doubling
	longestPause = 2 * time.Second
	// DefaultStall is how long a try may go without a byte in either direction.
	DefaultStall = 30 * time.Second
)

var errStalled = errors.New("nothing came or went for too long")

// Config is what a Forwarder needs.
type Config struct {
	// Base is the orchestrator's: scheme and host. Required.
	Base *url.URL
	// Transport carries requests there. It follows no redirects. Required.
	Transport http.RoundTripper
	// Credential returns what is shown now, and a channel that is closed when there is another; nil: there will be no other,
	// and one that is refused is refused for good. Required.
	Credential func() (credential string, changed <-chan struct{})
	// Patience is how long the orchestrator may be away before a request fails. It is asked when it is found to be. Required.
	Patience func() time.Duration
	// SpoolDir takes the bodies of writes that are too large for memory, until they are answered. It is made where it is
	// missing. Required.
	SpoolDir string
	// Stall is how long a try may go without a byte in either direction before it is given up and repeated; 0 is DefaultStall.
	Stall time.Duration
}

func (c Config) withDefaults() Config {
	if c.Stall == 0 {
		c.Stall = DefaultStall
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Base == nil || c.Base.Host == "":
		return errors.New("no base URL")
	case c.Transport == nil:
		return errors.New("no transport")
	case c.Credential == nil:
		return errors.New("no credential")
	case c.Patience == nil:
		return errors.New("no patience")
	case c.SpoolDir == "":
		return errors.New("no spool folder")
	case c.Stall < 0:
		return fmt.Errorf("stall %v: it is negative", c.Stall)
	}
	return nil
}

// Forwarder sends the requests of one step to the data plane. It is an http.RoundTripper: an http.Client with it as its
// transport reaches /v1/data/… and the questions about data, whatever the host of the URL is called. It answers a request that
// it does not forward by itself; its only errors are those of the request's context. It is safe for concurrent use.
type Forwarder struct{ cfg Config }

var _ http.RoundTripper = (*Forwarder)(nil)

// New returns a Forwarder.
func New(cfg Config) (*Forwarder, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("data proxy: %w", err)
	}
	return &Forwarder{cfg}, nil
}

// RoundTrip implements http.RoundTripper.
func (f *Forwarder) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	k, fault := classify(req)
	if fault != nil {
		return faultAnswer(req, fault), nil
	}
	e := &exchange{f: f, req: req, kind: k, header: passedOn(req.Header), target: target(f.cfg.Base, req.URL)}
	switch {
	case k == kindAsk:
		e.body, fault = readQuestion(req)
	case k == kindWrite && req.Method != http.MethodDelete:
		if e.body, fault = spool(req, f.cfg.SpoolDir); fault == nil {
			defer e.body.free()
			e.header.Set(contentDigest, e.body.contentDigest())
		}
	}
	if fault != nil {
		return faultAnswer(req, fault), nil
	}
	if k == kindWrite && e.header.Get(idempotencyKey) == "" {
		e.header.Set(idempotencyKey, newRequestID())
	}
	resp, err := e.persist()
	var said *messages.Fault
	switch {
	case errors.As(err, &said):
		return faultAnswer(req, said), nil
	case err != nil:
		return nil, err
	}
	dropHeaders(resp.Header)
	if k == kindRead {
		e.resumable(resp)
	}
	return resp, nil
}

// exchange is one request of a step, over as many tries as it takes.
type exchange struct {
	f      *Forwarder
	req    *http.Request
	kind   kind
	target *url.URL
	header http.Header
	body   *body // nil: none

	since    time.Time     // when the orchestrator was found to be away; zero: it is not
	patience time.Duration // from then on
	tries    int           // since then
}

// persist tries until there is an answer that another try would not change. Errors are those of the request's context, or
// a fault where none came in time.
func (e *exchange) persist() (*http.Response, error) {
	for {
		shown, changed := e.f.cfg.Credential()
		resp, err := e.try(shown)
		var last *bad
		switch {
		case err == nil && resp.StatusCode < http.StatusMultipleChoices, err == nil && resp.StatusCode == http.StatusNotModified:
			if resp, err = e.settled(resp); err == nil {
				return resp, nil
			}
		case err == nil && resp.StatusCode < http.StatusBadRequest:
			_ = resp.Body.Close()
			return nil, messages.Faultf(messages.CodeUnavailable, "the orchestrator's address answers with a redirect, which a worker does not follow")
		case err == nil:
			if last, err = readBad(resp); err == nil && (!last.passing() || last.refused() && changed == nil) {
				return last.answer(e.req), nil
			}
		}
		if e.req.Context().Err() != nil {
			return nil, context.Cause(e.req.Context())
		}
		if e.since.IsZero() {
			e.since, e.patience = time.Now(), e.f.cfg.Patience()
		}
		left := e.patience - time.Since(e.since)
		if left <= 0 {
			if last != nil {
				return last.answer(e.req), nil
			}
			return nil, messages.Faultf(messages.CodeUnavailable, "the orchestrator cannot be reached: %v", err)
		}
		if err := e.pause(min(e.nextPause(), left), changed); err != nil {
			return nil, err
		}
	}
}

// settled is an answer of success that cannot break any more, but for that of a read, which can be gone on with.
func (e *exchange) settled(resp *http.Response) (*http.Response, error) {
	if e.kind == kindRead {
		return resp, nil
	}
	whole, err := readWhole(resp)
	if err != nil {
		return nil, err
	}
	return wholeAnswer(e.req, resp.StatusCode, resp.Header, whole), nil
}

func (e *exchange) nextPause() time.Duration {
	d := min(firstPause<<min(e.tries, 10), longestPause)
	e.tries++
	return d/2 + rand.N(d/2)
}

// pause waits before the next try. Another credential means that the orchestrator is there again.
func (e *exchange) pause(d time.Duration, changed <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-changed:
		return nil
	case <-e.req.Context().Done():
		return context.Cause(e.req.Context())
	}
}
