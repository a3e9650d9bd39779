package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

// closeCode is the status of a WebSocket that a worker closes with a code. The orchestrator's are from there on; the
// reason of both is "code: text".
const closeCode = websocket.StatusCode(4000)

// closeReasonBytes is what a WebSocket's close reason can hold.
const closeReasonBytes = 123

// ParseURL reads the URL of an orchestrator: http, https, ws or wss, a host, perhaps a port, and nothing else.
func ParseURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("no orchestrator URL")
	}
	const want = "want http, https, ws or wss and a host, such as ws://127.0.0.1:4000"
	u, err := url.Parse(text)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return nil, fmt.Errorf("orchestrator URL %q: %w: %s", text, err, want)
	}
	if u.User != nil {
		return nil, errors.New("orchestrator URL: it must not hold a user or password; a worker shows its token instead")
	}
	bad := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("orchestrator URL %q: %s: %s", text, why, want)
	}
	switch u.Scheme {
	case "http", "https", "ws", "wss":
	case "":
		return bad("no scheme")
	default:
		return bad("unknown scheme " + strconv.Quote(u.Scheme))
	}
	if u.Hostname() == "" {
		return bad("no host")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return bad("port " + strconv.Quote(port) + " is none")
		}
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return bad("it has a path, query or fragment")
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// dialer connects to u by WebSocket.
func dialer(u *url.URL, version string) func(context.Context) (Link, error) {
	target := u.JoinPath(messages.Path).String()
	return func(ctx context.Context) (Link, error) { return dial(ctx, target, version) }
}

func dial(ctx context.Context, target, version string) (Link, error) {
	l := &wsLink{}
	var dialing net.Dialer
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: dialTimeout,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialing.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			corked := &corkConn{Conn: conn}
			l.setRaw(corked)
			return corked, nil
		},
	}
	// The connection itself is not idle; what a refused upgrade leaves is.
	defer transport.CloseIdleConnections()
	conn, resp, err := websocket.Dial(ctx, target, &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: transport},
		HTTPHeader:   http.Header{"User-Agent": {"swamp-worker/" + version}},
		Subprotocols: []string{messages.Subprotocol},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, dialError(ctx, err, resp))
	}
	if got := conn.Subprotocol(); got != messages.Subprotocol {
		_ = conn.CloseNow()
		return nil, fmt.Errorf("connect to %s: it answers, but does not speak %s: is it an orchestrator?", target, messages.Subprotocol)
	}
	conn.SetReadLimit(messages.MaxFrame)
	l.conn = conn
	return l, nil
}

// dialError makes one short sentence of a failed dial.
func dialError(ctx context.Context, err error, resp *http.Response) error {
	var request *url.Error
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", dialTimeout)
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		return fmt.Errorf("it answers %d %s, not as an orchestrator does", resp.StatusCode, http.StatusText(resp.StatusCode))
	case errors.As(err, &request):
		return request.Err
	default:
		return err
	}
}

// keptBytes is the largest buffer that is kept for the next frame.
const keptBytes = 256 << 10

// wsLink is a Link over a WebSocket. All its calls get the context of the connection: it is watched once, where the
// library would set up a watch per frame.
type wsLink struct {
	conn  *websocket.Conn
	watch sync.Once
	buf   bytes.Buffer // Read's

	mu  sync.Mutex
	raw *corkConn
}

var (
	_ Link      = (*wsLink)(nil)
	_ batchLink = (*wsLink)(nil)
)

func (l *wsLink) setRaw(c *corkConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.raw = c
}

func (l *wsLink) getRaw() *corkConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.raw
}

// follow ends the connection when ctx ends.
func (l *wsLink) follow(ctx context.Context) {
	l.watch.Do(func() {
		context.AfterFunc(ctx, func() {
			// The library's Close holds CloseNow off; the socket under both does not.
			if raw := l.getRaw(); raw != nil {
				_ = raw.Close()
			}
			_ = l.conn.CloseNow()
		})
	})
}

func (l *wsLink) Read(ctx context.Context) (*messages.Frame, error) {
	l.follow(ctx)
	kind, r, err := l.conn.Reader(context.Background())
	if err != nil {
		return nil, readError(err)
	}
	if l.buf.Cap() > keptBytes {
		l.buf = bytes.Buffer{}
	}
	l.buf.Reset()
	if _, err := l.buf.ReadFrom(r); err != nil {
		return nil, readError(err)
	}
	coding := messages.CodingProtobuf
	if kind == websocket.MessageText {
		coding = messages.CodingJSON
	}
	return messages.DecodeFrame(l.buf.Bytes(), coding)
}

// readError finds the code with which the peer closed.
func readError(err error) error {
	var closed websocket.CloseError
	if !errors.As(err, &closed) {
		return fmt.Errorf("the connection broke: %w", err)
	}
	if code, text, ok := strings.Cut(closed.Reason, ": "); closed.Code >= closeCode && ok {
		return &messages.Fault{Code: messages.Code(code), Text: text}
	}
	if closed.Reason == "" {
		return fmt.Errorf("the orchestrator closed the connection (%d)", closed.Code)
	}
	return fmt.Errorf("the orchestrator closed the connection (%d): %s", closed.Code, closed.Reason)
}

func (l *wsLink) Write(ctx context.Context, f *messages.Frame) error {
	l.follow(ctx)
	data, err := messages.EncodeFrame(f, messages.CodingProtobuf)
	if err != nil {
		return err
	}
	return l.conn.Write(context.Background(), websocket.MessageBinary, data)
}

// WriteBatch sends frames in as few system calls as possible.
func (l *wsLink) WriteBatch(ctx context.Context, frames []*messages.Frame) error {
	raw := l.getRaw()
	if raw != nil {
		raw.cork()
	}
	var err error
	for _, f := range frames {
		if err = l.Write(ctx, f); err != nil {
			break
		}
	}
	if raw != nil {
		err = errors.Join(err, raw.uncork())
	}
	return err
}

// Close does the closing handshake. The end of the connection's context cuts it short.
func (l *wsLink) Close(code messages.Code, text string) error {
	status, reason := websocket.StatusNormalClosure, text
	if code != "" {
		status, reason = closeCode, string(code)+": "+text
	}
	if len(reason) > closeReasonBytes {
		reason = strings.ToValidUTF8(reason[:closeReasonBytes], "")
	}
	err := l.conn.Close(status, reason)
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// corkLimit is how much a corked connection gathers before it writes.
const corkLimit = 64 << 10

// corkConn is a connection that can gather what is written: each frame of a WebSocket is a write of its own.
type corkConn struct {
	net.Conn

	mu     sync.Mutex
	corked bool
	buf    []byte
}

func (c *corkConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.corked {
		return c.Conn.Write(p)
	}
	c.buf = append(c.buf, p...)
	if len(c.buf) >= corkLimit {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (c *corkConn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = true
}

// uncork writes what was gathered.
func (c *corkConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	return c.flush()
}

func (c *corkConn) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	_, err := c.Conn.Write(c.buf)
	c.buf = c.buf[:0]
	if err != nil {
		return fmt.Errorf("write to socket: %w", err)
	}
	return nil
}
