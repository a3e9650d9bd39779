package gateway

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/coder/websocket"

	"github.com/swampd/swampd/messages"
)

// run is the life of a socket: a session is made, each frame is handed to it, and it is told the end.
func (c *conn) run() {
	defer c.server.forget(c)
	session, err := c.server.orchestrator.Connect(c, c.info)
	if err != nil {
		c.refused(err)
	} else {
		c.session = session
		c.log.Debug("a socket opened")
		err = c.readAll()
	}
	shakes, why := c.finish(err)
	if session != nil {
		session.Closed(why)
	}
	c.log.Debug("a socket closed", slog.Any(messages.KeyReason, why))
	if shakes {
		<-c.shaken
	} else {
		_ = c.ws.CloseNow() // nobody is left to be told of an error
	}
	<-c.wire.done
}

// refused closes a socket that gets no session.
func (c *conn) refused(err error) {
	var fault *messages.Fault
	if !errors.As(err, &fault) {
		c.server.logInternal(err)
		fault = messages.ErrorOf(err).Fault()
	}
	c.shut(fault)
}

// finish settles whether a closing handshake of ours is under way, and why the socket ended.
func (c *conn) finish(err error) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.reason == nil {
		c.end(err)
	}
	return c.shakes, c.reason
}

// readAll reads until the socket ends, and says why it did. Frames that come after the socket began to close are read,
// as the closing handshake needs it, and dropped.
func (c *conn) readAll() error {
	var buf []byte
	malformed := 0
	for {
		typ, r, err := c.ws.Reader(context.Background())
		if err != nil {
			return peerError(err)
		}
		if c.closing.Load() {
			if _, err := io.Copy(io.Discard, r); err != nil {
				return peerError(err)
			}
			continue
		}
		coding := messages.CodingProtobuf
		if typ == websocket.MessageText {
			coding = messages.CodingJSON
		}
		if buf, err = readMessage(r, buf[:0]); err != nil {
			if messages.CodeOf(err) != messages.CodeFrameTooLarge {
				return peerError(err)
			}
			// The rest of it is not read: the closing handshake drops it.
			c.complain(coding, "", err)
			c.shut(messages.Faultf(messages.CodeFrameTooLarge, "%v", err))
			return err
		}
		if !c.take(coding, buf) {
			malformed++
		}
		if malformed == maxMalformed {
			c.log.Warn("a peer sent too many malformed frames and is disconnected", slog.Int(messages.KeyCount, malformed))
			c.shut(messages.Faultf(messages.CodeMalformed, "%d malformed frames", malformed))
			return c.closedError()
		}
		if cap(buf) > keepBuffer {
			buf = nil
		}
	}
}

// readMessage reads one message into buf, which grows as needed. One above [messages.MaxFrame] is a Fault, and is left
// unread from there on.
func readMessage(r io.Reader, buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(512, len(buf)))...)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > messages.MaxFrame:
			return buf, messages.Faultf(messages.CodeFrameTooLarge, "frame is above the limit of %d bytes", messages.MaxFrame)
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

// take decodes a message and hands it to the session. It is false where the message is no frame; the peer has then been
// told.
func (c *conn) take(coding messages.Coding, data []byte) bool {
	f, err := messages.DecodeFrame(data, coding)
	if err == nil {
		err = checkFrame(f)
	} else { // it may quote the peer at any length
		err = messages.Faultf(messages.CodeOf(err), "%s", strings.ToValidUTF8(cut(err.Error(), maxQuote), "?"))
	}
	if err != nil {
		id := f.GetId()
		if len(id) > maxID {
			id = ""
		}
		c.complain(coding, id, err)
		return false
	}
	if !c.asked(f, coding) {
		c.complain(coding, f.GetId(), messages.Faultf(messages.CodeTooManyRequests,
			"%d requests are under way in the other coding of this socket", maxOthers))
		return true
	}
	c.busy.Store(true)
	c.session.Receive(f)
	c.busy.Store(false)
	return true
}

// checkFrame refuses what is well-formed and still says nothing.
func checkFrame(f *messages.Frame) error {
	switch {
	case f.GetBody() == nil:
		return messages.Faultf(messages.CodeMalformed, "no valid frame: it has no body that this side knows")
	case len(f.GetId()) > maxID:
		return messages.Faultf(messages.CodeMalformed, "no valid frame: its id is longer than %d bytes", maxID)
	case f.GetId() == "" && f.GetError() == nil: // an error without an id is about a frame that could not be read
		return messages.Faultf(messages.CodeMalformed, "no valid frame: it has no id")
	}
	return nil
}

// complain sends an error in the coding of what it is about.
func (c *conn) complain(coding messages.Coding, id string, err error) {
	data, err := messages.EncodeFrame(errorFrame(id, err), coding)
	if err == nil {
		err = c.put(message{data: data, coding: coding})
	}
	if err != nil { // reading will fail too
		c.log.Debug("a peer could not be told of its mistake", slog.Any(messages.KeyErr, err))
	}
}

// peerError says in our words how a peer left.
func peerError(err error) error {
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed) && closed.Code == websocket.StatusNoStatusRcvd:
		return errors.New("the peer closed the socket")
	case errors.As(err, &closed):
		return &peerClosedError{status: int(closed.Code), reason: closed.Reason}
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return errors.New("the peer cut the connection")
	default:
		return err
	}
}
