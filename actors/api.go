package actors

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// A Conn is one socket as its session sees it. Gateway implements it. It is safe for concurrent use.
type Conn interface {
	// Send queues a frame to be written and never blocks. An error says that the connection is closed or that the peer reads
	// too slowly, in which case the connection closes itself.
	Send(f *messages.Frame) error
	// SendWait is Send for whoever may wait: it blocks until the queue has room for the frame, so that a peer which reads
	// slowly slows its stream down instead of losing its connection. A peer that does not read at all runs into the write
	// deadline.
	SendWait(ctx context.Context, f *messages.Frame) error
	// Close writes what is queued, then closes; it does not wait for that. Closing twice is harmless.
	Close(code messages.Code, text string)
	// Ping asks the peer for a sign of life, and returns once one came or ctx has ended.
	Ping(ctx context.Context) error
}

// ConnInfo is what is known of a socket before its first frame.
type ConnInfo struct {
	// Remote is the peer's address, for logs and for rate limits.
	Remote string
	// Client: it presented the server token, so it may use the verbs of clients.
	Client bool
	// Loopback: it is the orchestrator's own worker, which enrolls without a token.
	Loopback bool
}

// A Session is the actors' end of a socket.
type Session interface {
	// Receive takes the next frame, in the order of the socket. It blocks only where that many frames of this socket are
	// waiting already.
	Receive(f *messages.Frame)
	// Closed says that the socket is gone. It is called once, after the last Receive.
	Closed(reason error)
}

// Emit takes one event of a streaming verb. It may block; an error ends the stream.
type Emit func(*messages.Event) error

// Orchestrator is what the edge needs of a [System].
type Orchestrator interface {
	// Connect makes a session of a socket. An error (not ready, stopping) is a *messages.Fault.
	Connect(conn Conn, info ConnInfo) (Session, error)
	// Do answers a client's verb. A verb that streams calls emit, in order, from this goroutine; emit may be nil for the
	// others. Errors are *messages.Fault, or those of ctx.
	Do(ctx context.Context, verb messages.Verb, params proto.Message, emit Emit) (proto.Message, error)
	// Data is the data plane; nil before there is one.
	Data() *Data
	// Ready tells whether connections are accepted: reconciled, and not stopping.
	Ready() bool
	// PingInterval is how often a peer should be heard of; one that is silent for three of them is gone.
	PingInterval() time.Duration
	// Metrics is a snapshot for /metrics.
	Metrics(ctx context.Context) (Metrics, error)
}

// Metrics is a snapshot of the orchestrator's numbers.
type Metrics struct {
	// Waiting counts the waiting steps of each requirement that has some.
	Waiting map[string]int
	// Workers counts the known workers by status.
	Workers map[messages.WorkerStatus]int
	// SlotsFree and SlotsTotal count the slots of workers that may be given work.
	SlotsFree, SlotsTotal int
	// RunsLive counts the runs that have not ended; RunsEnded those that ended since the start, by status.
	RunsLive  int
	RunsEnded map[messages.RunStatus]uint64
	// StepsEnded counts the steps that ended since the start, by status.
	StepsEnded map[messages.StepStatus]uint64
	// Drains counts the drains of workers that began since the start, by cause: the reason for which the worker stops, or
	// other.
	Drains map[string]uint64
	// Restarts counts actors that were restarted after a panic.
	Restarts uint64
	// Findings counts what the auditor found in the books: zero, or a fault of ours.
	Findings uint64
	// Commits, Syncs and SyncTime are the journal's.
	Commits, Syncs uint64
	SyncTime       time.Duration
}
