package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/worker/dataproxy"
)

// dataPatience is how long a request for data tries to reach an orchestrator that was there.
const dataPatience = 30 * time.Second

// dataFlags say which way a command goes to data.
type dataFlags struct{ url string }

func (a *app) addData(flags *pflag.FlagSet) *dataFlags {
	f := &dataFlags{}
	a.addFormat(flags)
	flags.StringVar(&f.url, "data-url", "", "`URL` of a step's own way to data, unix:// and a path; without it the orchestrator is asked")
	bindEnv(flags, "data-url", "SWAMP_DATA_URL")
	a.addClient(flags)
	return f
}

// dataClient talks to the data plane: through the worker of the step that the command runs in, or with the orchestrator.
type dataClient struct {
	transport http.RoundTripper
	base      *url.URL
	// through the worker, which keeps what is sent until it is answered.
	inStep bool
	client *client // nil in a step
	close  func()
}

// newDataClient makes the client of a command. close has to be called.
func (a *app) newDataClient(from settings, f *dataFlags) (*dataClient, error) {
	if f.url != "" && from["server"] != fromFlag {
		return stepDataClient(f.url, from)
	}
	c, err := a.newClient(from)
	if err != nil {
		return nil, err
	}
	return c.data()
}

func stepDataClient(text string, from settings) (*dataClient, error) {
	path, ok := strings.CutPrefix(text, "unix://")
	if !ok || !filepath.IsAbs(filepath.FromSlash(path)) {
		return nil, usagef("invalid value %q of %s: want unix:// and an absolute path, as a step finds it in SWAMP_DATA_URL", text, from.name("data-url"))
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", filepath.FromSlash(path))
		},
		DisableCompression: true,
	}
	return &dataClient{
		transport: transport, base: &url.URL{Scheme: "http", Host: "data"}, inStep: true, close: transport.CloseIdleConnections,
	}, nil
}

// data makes a client of the data plane of it. What is safe to repeat is repeated, as a worker does for its steps.
func (c *client) data() (*dataClient, error) {
	base := &url.URL{Scheme: strings.Replace(c.url.Scheme, "ws", "http", 1), Host: c.url.Host}
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok {
		return nil, errors.New("a client without a transport of its own") // connectTo makes it
	}
	transport = transport.Clone()
	transport.DisableCompression, transport.DisableKeepAlives = true, false
	var reached atomic.Bool
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			reached.Store(true)
		}
		return conn, err
	}
	way, err := dataproxy.New(dataproxy.Config{
		Base: base, Transport: transport, SpoolDir: os.TempDir(),
		Credential: func() (string, <-chan struct{}) { return c.token.Reveal(), nil },
		Patience: func() time.Duration {
			if reached.Load() {
				return dataPatience
			}
			return dialPatience
		},
	})
	if err != nil {
		return nil, err
	}
	return &dataClient{transport: way, base: base, client: c, close: transport.CloseIdleConnections}, nil
}

// do makes a request. An answer that is no success is an error: a *messages.Fault, or an *unreachableError. Then there is no
// answer to close.
func (d *dataClient) do(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	target := *d.base
	target.Path, target.RawQuery = path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if summed, ok := body.(*summedBody); ok {
		req.Trailer, req.ContentLength = summed.trailer, -1
	}
	resp, err := d.transport.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, d.unreachable(plainNetError(err), false)
	}
	if resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, d.refusal(resp)
}

func (d *dataClient) unreachable(err error, permanent bool) error {
	if d.inStep {
		return fmt.Errorf("the worker's data socket: %w", err)
	}
	return &unreachableError{server: d.client.shown, err: err, permanent: permanent}
}

// refusal is what an answer says that is no success.
func (d *dataClient) refusal(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var said messages.Fault
	var shape struct {
		Code    messages.Code `json:"code"`
		Text    string        `json:"text"`
		Details []string      `json:"details"`
	}
	if err == nil {
		err = json.Unmarshal(data, &shape)
	}
	said = messages.Fault{Code: shape.Code, Text: shape.Text, Details: shape.Details}
	switch {
	case err != nil || said.Code == "":
		return d.unreachable(fmt.Errorf("what listens there has no data plane: it answers %s", resp.Status), true)
	case said.Code == messages.CodeUnauthorized && !d.inStep:
		return d.client.unauthorized()
	case said.Code == messages.CodeUnavailable && !d.inStep:
		return d.unreachable(errors.New(strings.TrimPrefix(said.Text, "the orchestrator cannot be reached: ")), false)
	}
	return &said
}

// ask asks a question about data.
func (d *dataClient) ask(ctx context.Context, verb messages.Verb, params, result proto.Message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, dataPatience+callTimeout, errors.New("no answer came in time"))
	defer cancel()
	body, err := protojson.Marshal(params)
	if err != nil {
		return err
	}
	resp, err := d.do(ctx, http.MethodPost, "/v1/rpc/"+string(verb), nil, http.Header{"Content-Type": {"application/json"}}, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	return readShape(resp, result)
}

// readShape reads an answer that is an object.
func readShape(resp *http.Response, result proto.Message) error {
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil {
		err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, result)
	}
	if err != nil {
		return fmt.Errorf("read the orchestrator's answer: %w", err)
	}
	return nil
}

// artifactPath is the path of an artifact. What is no name is refused by the orchestrator, and a path with tricks in it is
// none.
func artifactPath(name string) string { return "/v1/data/" + name }

// interruptibly runs what an interrupt ends, and returns when it has ended.
func (a *app) interruptibly(ctx context.Context, run func(context.Context) error) error {
	signals, stop := a.host.Notify(os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan error, 1)
	go func() { done <- run(ctx) }() // this function waits for it, but for a read of standard input that nothing ends
	select {
	case err := <-done:
		return err
	case <-signals:
		cancel(errInterrupted)
	}
	within(done, leaveTimeout) // a read of standard input is left behind: the process ends
	return errInterrupted
}
