package gateway

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/swampd/swampd/messages"
)

// rawPeer is a WebSocket whose peer does no more than a test makes it do.
type rawPeer struct {
	t       testing.TB
	conn    net.Conn
	in      *bufio.Reader
	session *fakeSession
}

// Opcodes of WebSocket.
const (
	opText   = 0x1
	opBinary = 0x2
	opPing   = 0x9
)

// raw upgrades a connection by hand.
func (f *fixture) raw(t testing.TB, client bool) *rawPeer {
	t.Helper()
	conn, err := f.dial(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	head := "GET " + messages.Path + " HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	if client {
		head += "Authorization: Bearer " + testToken + "\r\n"
	}
	p := &rawPeer{t: t, conn: conn, in: bufio.NewReader(conn)}
	p.write([]byte(head + "\r\n"))
	response, err := http.ReadResponse(p.in, nil) //nolint:bodyclose // an upgrade has none
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", response.StatusCode)
	}
	p.session = take(t, f.sessions, "a session")
	return p
}

func (p *rawPeer) write(b []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// upgrade is a request for a WebSocket.
func upgrade(t *testing.T) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, messages.Path, http.NoBody)
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	return r
}

// discard reads everything, and answers nothing.
func (p *rawPeer) discard() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, p.in) // ends with the connection
	}()
	return done
}

// rawHeader is the head of a masked message. The mask is zero, so the payload follows as it is.
func rawHeader(opcode byte, length int) []byte {
	b := []byte{0x80 | opcode}
	switch {
	case length < 126:
		b = append(b, 0x80|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(length))
	}
	return append(b, 0, 0, 0, 0)
}

func rawMessage(opcode byte, payload []byte) []byte {
	return append(rawHeader(opcode, len(payload)), payload...)
}
