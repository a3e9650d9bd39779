package gateway

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

func TestConn_APeerThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	slow, other := f.raw(t, true), f.connect(t, true)
	sent := 0
	var err error
	for ; err == nil && sent < 10_000; sent++ {
		err = slow.session.conn.Send(output("1", 32<<10))
	}
	if messages.CodeOf(err) != messages.CodeStreamOverflow {
		t.Fatalf("after %d frames: %v", sent, err)
	}
	if queued := slow.session.conn.(*conn).wire.queued(); queued > queueClient {
		t.Errorf("%d bytes are queued, the limit is %d", queued, queueClient)
	}
	other.exchange("undisturbed")
	_ = slow.conn.Close()
	if code := messages.CodeOf(slow.session.ended(t)); code != messages.CodeStreamOverflow {
		t.Errorf("the session was told %s", code)
	}
}

func TestConn_WhoEnrolledMayHaveMoreQueued(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) { // nothing is read: the pipe holds no byte
		nobody, client, worker := f.raw(t, false), f.raw(t, true), f.raw(t, false)
		if err := worker.session.conn.Send(enrolled("1")); err != nil {
			t.Fatal(err)
		}
		const size = 64 << 10
		tests := []struct {
			name   string
			p      *rawPeer
			frames int
			full   bool
		}{
			{"nobody", nobody, queueAnonymous / size, true},
			{"client", client, queueClient / size, true},
			{"worker", worker, 2 * queueClient / size, false},
		}
		for _, tt := range tests {
			for i := range tt.frames - 1 {
				if err := tt.p.session.conn.Send(output("1", size)); err != nil {
					t.Fatalf("%s: frame %d: %v", tt.name, i, err)
				}
			}
			if err := tt.p.session.conn.Send(output("1", size)); (err != nil) != tt.full {
				t.Errorf("%s: frame %d: %v", tt.name, tt.frames, err)
			}
		}
	})
}

func TestConn_SendWaitSlowsAStreamDown(t *testing.T) {
	t.Parallel()
	f := serve(t, newFake(), nil)
	p := f.connect(t, true)
	const frames, size = 300, 32 << 10 // far more than the queue holds
	sent := make(chan error, 1)
	go func() {
		for range frames {
			if err := p.session.conn.SendWait(t.Context(), output("1", size)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range frames {
		if _, _, err := p.read(); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if err := take(t, sent, "the end of the stream"); err != nil {
		t.Error(err)
	}
}

func TestConn_SendWaitEndsWithTheConnectionAndItsContext(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		p := f.raw(t, true)
		var err error
		for err == nil { // leave no room
			ctx, cancel := contextWithin(time.Second)
			err = p.session.conn.SendWait(ctx, output("1", 64<<10))
			cancel()
		}
		if len(p.session.closed) > 0 {
			t.Fatal("waiting closed the connection")
		}
		if err := p.session.conn.Send(pong("1")); err != nil {
			t.Errorf("a stream left no room for others: %v", err)
		}
		_, err = p.conn.Write(rawMessage(opText, []byte("x")))
		if err != nil {
			t.Error(err)
		}
		waits := make(chan error, 1)
		go func() { waits <- p.session.conn.SendWait(t.Context(), output("1", 64<<10)) }()
		_ = p.conn.Close()
		if err := <-waits; err == nil {
			t.Error("a frame was sent to nobody")
		}
	})
}

// A peer that makes the library answer, and never reads the answers.
func TestConn_PingsWithoutReadingAreBounded(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		p := f.raw(t, false)
		ping := rawMessage(opPing, make([]byte, 125))
		const room = 64 << 10
		p.session.conn.(*conn).wire.limit.Store(room - queueSlack)
		flood := bytes.Repeat(ping, 50)
		pings := 0
		for err := error(nil); err == nil; pings += 50 {
			_, err = p.conn.Write(flood)
		}
		if most := room / 127; pings < most || pings > most+150 {
			t.Errorf("the answers to %d pings were queued, want at most %d", pings, most)
		}
		<-p.session.closed
	})
}

func TestConn_ARawProtocolErrorEndsOnlyThatSocket(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		data []byte
	}{
		{"an unmasked message", []byte{0x81, 0x01, 'x'}},
		{"an unknown opcode", rawMessage(0x3, nil)},
		{"a continuation of nothing", rawMessage(0x0, []byte("x"))},
		{"a reserved bit", append([]byte{0xc1, 0x80}, 0, 0, 0, 0)},
		{"a ping that is too long", rawMessage(opPing, make([]byte, 126))},
		{"a length above 63 bits", append([]byte{0x81, 0xff}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)},
		{"half a header", []byte{0x81}},
	}
	f := serve(t, newFake(), nil)
	other := f.connect(t, true)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { // one after the other, as they share the other socket
			p := f.raw(t, false)
			p.write(tt.data)
			if len(tt.data) == 1 {
				_ = p.conn.Close()
			}
			if reason := p.session.ended(t); reason == nil {
				t.Error("it ended without a reason")
			}
			other.exchange(tt.name)
		})
	}
}

func TestConn_ManySocketsAtOnce(t *testing.T) {
	t.Parallel()
	fake := newFake()
	fake.onFrame = func(s *fakeSession, f *messages.Frame) { _ = s.conn.Send(pong(f.GetId())) }
	f := serve(t, fake, nil)
	const sockets, requests = 100, 10
	peers := make([]*peer, sockets)
	for i := range peers {
		peers[i] = f.connect(t, i%2 == 0)
	}
	var all sync.WaitGroup
	for i, p := range peers {
		all.Go(func() {
			coding := messages.Coding(i % 2)
			for r := range requests {
				id := fmt.Sprintf("%d-%d", i, r)
				data, err := messages.EncodeFrame(ping(id), coding)
				if err == nil {
					err = p.ws.Write(t.Context(), typeOf(coding), data)
				}
				if err != nil {
					t.Errorf("socket %d: %v", i, err)
					return
				}
				got, gotCoding, err := p.read()
				if err != nil || got.GetId() != id || gotCoding != coding {
					t.Errorf("socket %d: %v in coding %d, %v", i, got, gotCoding, err)
					return
				}
			}
			_ = p.ws.CloseNow()
		})
	}
	all.Wait()
}

func TestConn_SendersAtTheSameTimeKeepFramesWhole(t *testing.T) {
	t.Parallel()
	p := serve(t, newFake(), nil).connect(t, true)
	const senders, frames = 8, 200
	var all sync.WaitGroup
	for i := range senders {
		all.Go(func() {
			for range frames {
				if err := p.session.conn.SendWait(t.Context(), output(fmt.Sprint(i), 100*i)); err != nil {
					t.Errorf("sender %d: %v", i, err)
					return
				}
			}
		})
	}
	counts := map[string]int{}
	for range senders * frames {
		f, _ := p.mustRead()
		counts[fmt.Sprintf("%s of %d bytes", f.GetId(), len(f.GetEvent().GetOutput().GetData()))]++
	}
	all.Wait()
	for i := range senders {
		if n := counts[fmt.Sprintf("%d of %d bytes", i, 100*i)]; n != frames {
			t.Errorf("sender %d: %d whole frames of %d", i, n, frames)
		}
	}
}

// Requests that are never finished hold no more than a connection, and not for ever.
func TestServer_ASlowHeadIsCut(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		conn, err := f.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := conn.Write([]byte("GET /healthz HTTP/1.1\r\nHost:")); err != nil {
			t.Fatal(err)
		}
		_, err = readToEnd(conn)
		within(t, time.Since(start), headerTimeout, headerTimeout+time.Second)
		if err != nil {
			t.Logf("it ended with %v", err)
		}
	})
}

func TestServer_ASlowBodyIsCut(t *testing.T) {
	bubble(t, newFake, func(t *testing.T, f *fixture) {
		conn, err := f.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		head := "POST /v1/rpc/version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + testToken + "\r\nContent-Length: 100\r\n\r\n{"
		if _, err := conn.Write([]byte(head)); err != nil {
			t.Fatal(err)
		}
		if _, err := readToEnd(conn); err != nil {
			t.Logf("it ended with %v", err)
		}
		within(t, time.Since(start), bodyTimeout, bodyTimeout+time.Second)
	})
}

func TestServer_TLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := selfSigned(t)
	f := serve(t, newFake(), func(c *Config) {
		c.Listen, c.TLSCert, c.TLSKey = "0.0.0.0:0", cert, key
	})
	_, port, err := net.SplitHostPort(f.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f.url = "https://127.0.0.1:" + port
	transport, ok := f.client.Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}
	transport.TLSClientConfig = pool
	p := f.connect(t, true)
	p.exchange("1")
	const frames = 500 // some megabytes, so that records and pieces do not fall together
	go func() {
		for range frames {
			if err := p.session.conn.SendWait(t.Context(), output("1", 20_011)); err != nil {
				t.Error(err)
			}
		}
		p.session.conn.Close(messages.CodeSuperseded, "enough")
	}()
	for i := range frames {
		if f, _, err := p.read(); err != nil || len(f.GetEvent().GetOutput().GetData()) != 20_011 {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if status, _ := p.status(); status != 4018 {
		t.Errorf("closed with %d", status)
	}
	_ = p.session.ended(t)
	if err := f.connect(t, false).ws.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("the handshake that the peer began: %v", err)
	}
	if got := f.call(t, http.MethodGet, "/healthz", "", nil); got.body != "ok\n" {
		t.Errorf("healthz: %+v", got)
	}
	plain, err := f.dial(t.Context(), "tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if said, _ := readToEnd(plain); said == "" {
		t.Error("who speaks plain HTTP is not told")
	}
}
