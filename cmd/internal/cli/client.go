package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/cmd/internal/daemon"
	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker"
)

// Times of a client.
const (
	callTimeout  = 30 * time.Second // for the answer to a short command
	dialTimeout  = 10 * time.Second
	dialPatience = 2 * time.Second // how long a short command tries to reach an orchestrator that may just be starting
	firstPing    = time.Second
	pingEvery    = 15 * time.Second
	pongTimeout  = 10 * time.Second
	firstPause   = 100 * time.Millisecond // between tries, doubling
	longestPause = 2 * time.Second
)

// clientFlags say which orchestrator a command talks to.
type clientFlags struct {
	server string
	token  secretValue
}

// addClient adds them to a command.
func (a *app) addClient(flags *pflag.FlagSet) {
	flags.StringVar(&a.client.server, "server", "http://"+defaultListen, "`URL` of the orchestrator")
	flags.Var(&a.client.token, "server-token", "server token; by default the admin token of a local orchestrator")
	bindEnv(flags, "server", "SWAMP_SERVER")
	bindEnv(flags, "server-token", envServerToken)
}

// client talks to one orchestrator. Each request has its own connection: a stream whose reader is slow then never
// holds up the cancel that its user asks for.
type client struct {
	url   *url.URL
	shown string // as its user wrote it
	token messages.Secret
	// tokenFrom says where the token came from, for the one who has to replace it.
	tokenFrom string
	http      *http.Client
	// pause waits between two tries.
	pause func(ctx context.Context, try int) error
}

// newClient makes the client of a command.
func (a *app) newClient(from settings) (*client, error) {
	u, err := worker.ParseURL(a.client.server)
	if err != nil {
		return nil, usagef("invalid value of %s: %v", from.name("server"), err)
	}
	c := connectTo(u, a.client.token.secret, from.name("server-token"))
	c.shown = a.client.server
	if c.token == "" && isLoopback(u.Hostname()) {
		file := filepath.Join(defaultDataDir(a.host), daemon.AdminTokenFile)
		c.tokenFrom = file
		switch c.token, err = daemon.ReadTokenFile(file); {
		case errors.Is(err, os.ErrNotExist):
			c.tokenFrom = ""
		case err != nil:
			return nil, fmt.Errorf("read the server token: %w", err)
		}
	}
	return c, nil
}

// connectTo makes a client of the orchestrator at u.
func connectTo(u *url.URL, token messages.Secret, tokenFrom string) *client {
	return &client{
		url: u.JoinPath(messages.Path), shown: u.String(), token: token, tokenFrom: tokenFrom, pause: pause,
		http: &http.Client{Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DisableKeepAlives:   true, // a connection is one request; what a refused one leaves would idle
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: dialTimeout,
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		}},
	}
}

// pause waits before the next try: longer each time, and not at the same moment as everybody else.
func pause(ctx context.Context, try int) error {
	d := min(firstPause<<min(try, 10), longestPause)
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lostError says that a connection ended before its answer. The orchestrator may have done what it was asked for.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the connection was lost: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// call asks for a short answer. It tries for a moment where the orchestrator may just be starting. A request that may
// have arrived is repeated only if repeat says that twice is as good as once.
func (c *client) call(ctx context.Context, verb messages.Verb, params proto.Message, repeat bool) (proto.Message, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer in %s", formatDuration(callTimeout)))
	defer cancel()
	start := time.Now()
	for try := 0; ; try++ {
		result, err := c.stream(ctx, verb, params, stream{})
		lost := isType[*lostError](err)
		if err == nil || !transient(err) || (lost && !repeat) || time.Since(start) > dialPatience {
			if lost {
				err = &unreachableError{server: c.shown, err: err}
			}
			return result, err
		}
		if err := c.pause(ctx, try); err != nil {
			return nil, err
		}
	}
}

// transient tells whether asking again may help.
func transient(err error) bool {
	if lost, ok := errors.AsType[*unreachableError](err); ok {
		return !lost.permanent
	}
	if isType[*lostError](err) {
		return true
	}
	fault, ok := errors.AsType[*messages.Fault](err)
	if !ok {
		return false
	}
	switch fault.Code {
	case messages.CodeNotReady, messages.CodeNotLeader, messages.CodeUnavailable, messages.CodeOverloaded,
		messages.CodeStreamOverflow:
		return true
	default: // no_space and rate_limited pass too, but a person should hear of them now
		return false
	}
}

// stream is what the caller of a streaming verb wants to hear of.
type stream struct {
	// event takes each event, in order. It may block. An error ends the stream.
	event func(*messages.RunEvent) error
	// chunk takes each piece of a backup, in order. It may block. An error ends the stream.
	chunk func([]byte) error
	// actor takes each event of actors, in order. It may block. An error ends the stream.
	actor func(*messages.ActorEvent) error
	// sent is called when the request has been written.
	sent func()
	// alive is called once, when the connection has proved to work.
	alive func()
}

// stream makes one request on a connection of its own and returns its answer. Errors are *messages.Fault,
// *unreachableError before anything was sent, *lostError after it, the cause of ctx, or that of s.event.
func (c *client) stream(ctx context.Context, verb messages.Verb, params proto.Message, s stream) (proto.Message, error) {
	request := &messages.Frame{Id: "1", Body: &messages.Frame_Request{Request: messages.NewRequest(verb, params)}}
	data, err := messages.EncodeFrame(request, messages.CodingProtobuf)
	if err != nil {
		return nil, err
	}
	ws, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer ws.CloseNow()
	if err := ws.Write(ctx, websocket.MessageBinary, data); err != nil {
		return nil, c.lost(ctx, err)
	}
	if s.sent != nil {
		s.sent()
	}
	if s.alive != nil {
		var reading atomic.Bool
		pinging, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			keepAlive(pinging, ws, &reading, s.alive)
		}()
		defer func() { stop(); <-done }()
		return c.receive(ctx, ws, verb, s, &reading)
	}
	return c.receive(ctx, ws, verb, s, &atomic.Bool{})
}

// receive reads events until the answer. reading is true while it waits for the network, and not for its caller.
func (c *client) receive(ctx context.Context, ws *websocket.Conn, verb messages.Verb, s stream, reading *atomic.Bool) (proto.Message, error) {
	for {
		reading.Store(true)
		_, data, err := ws.Read(ctx)
		reading.Store(false)
		if err != nil {
			return nil, c.lost(ctx, err)
		}
		frame, err := messages.DecodeFrame(data, messages.CodingProtobuf)
		if err != nil {
			return nil, fmt.Errorf("read the orchestrator's answer: %w", err)
		}
		switch body := frame.GetBody().(type) {
		case *messages.Frame_Event:
			if event := body.Event.GetRun(); event != nil && s.event != nil {
				if err := s.event(event); err != nil {
					return nil, err
				}
			}
			if event := body.Event.GetActor(); event != nil && s.actor != nil {
				if err := s.actor(event); err != nil {
					return nil, err
				}
			}
			if chunk := body.Event.GetBackup(); chunk != nil && s.chunk != nil {
				if err := s.chunk(chunk.GetData()); err != nil {
					return nil, err
				}
			}
		case *messages.Frame_Error:
			fault := body.Error.Fault()
			if fault.Code == messages.CodeUnauthorized {
				return nil, c.unauthorized()
			}
			return nil, fault
		case *messages.Frame_Response:
			result := messages.ResultOf(verb, body.Response)
			if result == nil {
				return nil, fmt.Errorf("the orchestrator at %s answered %s with something else", c.shown, verb)
			}
			_ = ws.Close(websocket.StatusNormalClosure, "") // the answer is here, whatever becomes of the connection
			return result, nil
		}
	}
}

// keepAlive finds a connection that died without a word. A reader that is busy does not see pongs: that is no sign of
// death.
func keepAlive(ctx context.Context, ws *websocket.Conn, reading *atomic.Bool, alive func()) {
	timer := time.NewTimer(firstPing)
	defer timer.Stop()
	for first := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		limited, cancel := context.WithTimeout(ctx, pongTimeout)
		err := ws.Ping(limited)
		cancel()
		switch {
		case err != nil && reading.Load():
			_ = ws.CloseNow() // the reader tells
			return
		case err == nil && first:
			first = false
			alive()
		}
		timer.Reset(pingEvery)
	}
}

func (c *client) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if closed, ok := errors.AsType[websocket.CloseError](err); ok && closed.Reason != "" {
		err = errors.New(closed.Reason)
	}
	return &lostError{err}
}

// dial connects, and shows the server token.
func (c *client) dial(ctx context.Context) (*websocket.Conn, error) {
	header := http.Header{}
	if c.token != "" {
		header.Set("Authorization", "Bearer "+c.token.Reveal())
	}
	limited, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ws, resp, err := websocket.Dial(limited, c.url.String(), &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header, Subprotocols: []string{messages.Subprotocol},
	})
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	if err == nil {
		ws.SetReadLimit(messages.MaxFrame + 1)
		return ws, nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if resp != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) {
		return nil, c.unauthorized()
	}
	fault := &unreachableError{server: c.shown, err: plainNetError(err)}
	switch {
	case resp != nil && resp.StatusCode >= http.StatusInternalServerError:
		fault.err = fmt.Errorf("it answers %s", resp.Status)
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		fault.err, fault.permanent = fmt.Errorf("what listens there is no swampd: it answers %s", resp.Status), true
	case isCertificate(err):
		fault.permanent = true
	}
	return nil, fault
}

// unauthorized says which token was refused, since the one who reads it has to replace it.
func (c *client) unauthorized() error {
	if c.token == "" {
		return messages.Faultf(messages.CodeUnauthorized,
			"the orchestrator at %s wants a server token: give --server-token or set %s (it is in the file %s of its data directory)",
			c.shown, envServerToken, daemon.AdminTokenFile)
	}
	return messages.Faultf(messages.CodeUnauthorized, "the orchestrator at %s does not accept the server token of %s", c.shown, c.tokenFrom)
}

func isCertificate(err error) bool {
	return isType[*tls.CertificateVerificationError](err) || isType[x509.UnknownAuthorityError](err) ||
		isType[x509.HostnameError](err) || isType[tls.RecordHeaderError](err)
}

// plainNetError drops what wraps the sentence that a person needs, such as the whole request.
func plainNetError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in %s", formatDuration(dialTimeout))
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return errors.New(strings.TrimPrefix(err.Error(), "failed to WebSocket dial: "))
}
