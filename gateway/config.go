package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// Config is what a [Server] is made of.
type Config struct {
	// Listen is the address to bind, as host:port. Port 0 takes a free one.
	Listen string
	// Listener, if set, is used in place of binding Listen. The server closes it.
	Listener net.Listener
	// TLSCert and TLSKey are files in PEM; both or none.
	TLSCert, TLSKey string
	// AdminToken is the server token that clients present.
	AdminToken messages.Secret
	// Orchestrator answers.
	Orchestrator actors.Orchestrator
	// Logger takes what a person should see.
	Logger *slog.Logger
}

func (c Config) validate() error {
	switch {
	case c.Listen == "" && c.Listener == nil:
		return errors.New("gateway: no address to listen on")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("gateway: a TLS certificate and its key belong together: give both or none")
	case c.AdminToken == "":
		return errors.New("gateway: no server token")
	case c.Orchestrator == nil:
		return errors.New("gateway: no orchestrator")
	case c.Logger == nil:
		return errors.New("gateway: no logger")
	}
	return nil
}

// Limits of time. Those on a peer's behalf are long, as a slow link is not a dead one.
const (
	headerTimeout  = 10 * time.Second // for the head of a request
	bodyTimeout    = 30 * time.Second // for the body of a request
	idleTimeout    = 2 * time.Minute  // between requests on one connection
	writeTimeout   = 45 * time.Second // for a piece of what is written, see writePiece
	closeTimeout   = 5 * time.Second  // for writing what is queued before the closing handshake, which has as long again
	lingerTimeout  = time.Second      // for the last bytes after it
	enrollTimeout  = time.Minute      // for a socket without a server token to enroll
	metricsTimeout = 10 * time.Second
)

// Limits of size.
const (
	maxHeader    = 32 << 10
	maxID        = 256  // bytes of a frame's id
	maxQuote     = 500  // bytes of an error about a frame that could not be read
	maxMalformed = 100  // malformed frames before the socket is closed
	maxAnonymous = 2048 // sockets that have shown neither a server token nor an enrollment
	maxOthers    = 1024 // requests under way in the coding that is not the socket's own

	// How much may wait to be written to a peer, in bytes. A worker may be given many dispatches at once, each with a
	// large environment; who has shown nothing is owed a few sentences.
	queueAnonymous = 256 << 10
	queueClient    = 4 << 20
	queueWorker    = 64 << 20

	// A queue that has grown above this is given back instead of used again.
	keepQueue = 2 << 20

	// A frame's reading buffer that has grown above this is given back.
	keepBuffer = 64 << 10
)

// queueSlack is how far above its limit a queue may get: by one frame, and by pongs.
const queueSlack = messages.MaxFrame + keepBuffer

// listenError is one line with the address and what to do.
type listenError struct {
	addr string
	next string
	err  error
}

func (e *listenError) Error() string {
	return fmt.Sprintf("listen on %s: %v: %s", e.addr, e.err, e.next)
}

func (e *listenError) Unwrap() error { return e.err }
