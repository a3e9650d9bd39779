//go:build e2e

package e2e

import (
	"net"
	"sync"
	"testing"
)

// proxy is a network between a client and an orchestrator. It is a plain relay of TCP until it is told to be worse.
type proxy struct {
	addr   string
	target string
	l      net.Listener
	work   sync.WaitGroup

	mu      sync.Mutex
	pairs   map[*pair]struct{}
	refuse  bool          // new connections are closed at once
	silent  bool          // new connections are accepted and lead nowhere
	stalled chan struct{} // not nil: nothing moves until it is closed
	count   int           // connections accepted
}

// pair is one connection through the proxy.
type pair struct {
	client, server net.Conn
	dead           chan struct{} // closed: what is read from now on is thrown away, and nobody is told
	dying          sync.Once
}

// swallow has the connection throw away what is read from now on.
func (x *pair) swallow() { x.dying.Do(func() { close(x.dead) }) }

// newProxy starts a proxy to an address. It ends with the test.
func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target, l: l, pairs: map[*pair]struct{}{}}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.resume()
		p.cut()
		p.work.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.count++
		refuse, silent := p.refuse, p.silent
		p.mu.Unlock()
		if refuse {
			client.Close()
			continue
		}
		x := &pair{client: client, dead: make(chan struct{})}
		if silent {
			x.swallow()
			p.keep(x)
			continue
		}
		if x.server, err = net.Dial("tcp", p.target); err != nil {
			client.Close()
			continue
		}
		p.keep(x)
		p.work.Go(func() { p.relay(x, client, x.server) })
		p.work.Go(func() { p.relay(x, x.server, client) })
	}
}

func (p *proxy) keep(x *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pairs[x] = struct{}{}
}

// relay copies one direction until either side ends.
func (p *proxy) relay(x *pair, from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled != nil {
			<-stalled
		}
		select {
		case <-x.dead:
			if err != nil {
				return // and the other side never hears of it
			}
			continue
		default:
		}
		if n > 0 {
			if _, writeErr := to.Write(buf[:n]); writeErr != nil {
				err = writeErr
			}
		}
		if err != nil {
			p.drop(x)
			return
		}
	}
}

// drop closes both ends, with a reset.
func (p *proxy) drop(x *pair) {
	p.mu.Lock()
	delete(p.pairs, x)
	p.mu.Unlock()
	for _, c := range []net.Conn{x.client, x.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // it may be closed already
			tcp.Close()
		}
	}
}

// live lists the connections of now.
func (p *proxy) live() []*pair {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*pair, 0, len(p.pairs))
	for x := range p.pairs {
		list = append(list, x)
	}
	return list
}

// cut resets every connection.
func (p *proxy) cut() {
	for _, x := range p.live() {
		p.drop(x)
	}
}

// deny makes the proxy close new connections at once, or not any more.
func (p *proxy) deny(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// stall stops all bytes in both directions, with every connection open, until resume.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// halfOpen makes the connections of now swallow everything for ever, as a firewall does that forgot them. No side is
// told. New ones work.
func (p *proxy) halfOpen() {
	for _, x := range p.live() {
		x.swallow()
	}
}

// accepted counts the connections so far.
func (p *proxy) accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}
