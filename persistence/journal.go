package persistence

import (
	"context"
	"io"
	"time"
)

// Kind is the kind of a record. Its keys and its life are the kind's (see keys.go).
type Kind string

// The kinds. Runs, pending dispatches, leases, tokens, workers and the scheduler have live and ended records under
// different prefixes, so that a boot reads what is unfinished and not everything. Steps stand under their run. The others
// do not end.
const (
	KindRun       Kind = "run"       // id: the run id
	KindSource    Kind = "source"    // id: the digest of a workflow's source
	KindStep      Kind = "step"      // id: StepID(run, ordinal)
	KindPending   Kind = "pending"   // id: the queue id
	KindLease     Kind = "lease"     // id: LeaseID(dispatch, generation)
	KindOutput    Kind = "output"    // id: the dispatch id; output that fitted into the commit that ended it
	KindToken     Kind = "token"     // id: the token's name
	KindBinding   Kind = "binding"   // id: BindingID(token, generation, machine)
	KindWorker    Kind = "worker"    // id: the worker's name
	KindScheduler Kind = "scheduler" // id: "scheduler"

	KindArtifact        Kind = "artifact" // id: the artifact's name
	KindArtifactVersion Kind = "version"  // id: ArtifactVersionID(name, number)
	KindDataRequest     Kind = "request"  // id: a digest, chosen by who writes it
)

// A Record is what the journal holds of one actor: the envelope and its body, a protobuf message of package messages.
type Record struct {
	Kind    Kind
	ID      string
	Version uint64 // from 1
	Epoch   uint64 // the boot that wrote it
	State   string
	Ended   bool
	Time    time.Time
	Body    []byte
}

// A Put writes one version of a record.
type Put struct {
	Kind Kind
	ID   string
	// Expect is the version that this one replaces; 0: there is none yet, live or ended. Another version in the journal
	// is [ErrStaleWriter].
	Expect uint64
	State  string
	// Ended moves the record out of the live ones. An ended record is not written again.
	Ended bool
	Body  []byte
}

// A Delete removes a record and its history; one that does not exist is no error.
type Delete struct {
	Kind Kind
	ID   string
}

// A Condition must hold for the commit to happen, else it is [ErrConditionFailed]. It names live records only, and
// exactly one of its three tests.
type Condition struct {
	Kind    Kind
	ID      string
	Absent  bool   // there is no live record
	Version uint64 // the live record has this version
	State   string // the live record is in this state
}

// An Append adds one event to a stream. The journal numbers the events of a stream densely, from 1.
type Append struct {
	Stream string
	Body   []byte
	// New promises that the stream has no event yet, which saves a look.
	New bool
	// Value, if set, is what Body encodes. Followers that are there get it with the event, so that they need not decode what
	// has just been encoded. It must not be changed any more.
	Value Numbered
}

// Numbered is the value of an event.
type Numbered interface {
	// Number tells the event its number. It is called once, before anybody gets the event.
	Number(seq uint64)
}

// Class says how a commit behaves when space runs short.
type Class int

// The classes. Below the first mark new work is refused, below the second all but endings.
const (
	ClassEnding  Class = iota // ends of leases, steps and runs, cancels, drains, revocations, enrollments
	ClassData                 // what running steps write
	ClassNewWork              // submits, first waits
)

// A Commit is one operation: all of it becomes durable, or nothing. It holds at most [MaxEntries] entries and
// [MaxCommitBytes], each key once.
type Commit struct {
	Class      Class
	Puts       []Put
	Deletes    []Delete
	Conditions []Condition
	// Drops name streams that lose their oldest events: those of [MaxDropped] commits, which is all of most streams. One
	// that has lost all begins at 1 again, and its followers end with ErrNotFound.
	Drops   []string
	Appends []Append
}

// Bounds of one commit; a larger one is [ErrTooLarge].
const (
	MaxEntries     = 1000
	MaxCommitBytes = 512 << 10
)

// An Event is one numbered event of a stream.
type Event struct {
	Seq  uint64
	Body []byte
	// Value is what the event was appended with. It is nil where the event comes out of the journal. Others have it too: it must
	// not be changed.
	Value Numbered
}

// A Chunk is a piece of a dispatch's output.
type Chunk struct {
	Offset uint64 // of its first byte, counting both streams together
	Stream string // stdout or stderr
	Time   time.Time
	Data   []byte
}

// Journal is the durable store. It is safe for concurrent use. Errors that belong to one operation are
// [ErrStaleWriter], [ErrConditionFailed], [ErrNoSpace] and [ErrTooLarge] (for errors.Is); any other error of Commit or
// AppendOutput, and one of a blob that wraps [ErrSync], means that nothing can be believed any more and the process has to end (rule P11).
type Journal interface {
	// Commit makes c durable and returns the numbers of its appends, in their order. It blocks until the disk has it.
	// A context that ends while the commit is under way does not undo it.
	Commit(ctx context.Context, c Commit) (seqs []uint64, err error)

	// Get returns a record, live or ended, or ErrNotFound.
	Get(kind Kind, id string) (Record, error)
	// Scan calls fn for each record of the kind whose id starts with prefix and is above after, in id order, live ones or
	// ended ones; fn returns false to stop. Records of a kind that does not end count as live. A record that cannot be
	// decoded is set aside, counted and skipped.
	Scan(kind Kind, ended bool, prefix, after string, fn func(Record) bool) error
	// ScanBack is Scan in falling id order, from below before (or from the end if that is empty).
	ScanBack(kind Kind, ended bool, prefix, before string, fn func(Record) bool) error
	// History returns former versions of a worker or token, newest first.
	History(kind Kind, id string) ([]Record, error)

	// Events returns up to limit events of a stream after the given number.
	Events(stream string, after uint64, limit int) ([]Event, error)
	// Follow returns the events of a stream after the given number, those to come included, in order and without a gap.
	Follow(stream string, after uint64) *Follower

	// AppendOutput adds chunks to the dispatch's log; they are durable when it returns. Chunks at or below what the log
	// holds already are dropped.
	AppendOutput(dispatch string, chunks []Chunk) error
	// CloseOutput lets go of what AppendOutput holds open for the dispatch.
	CloseOutput(dispatch string) error
	// Output returns chunks of the dispatch from the given offset (a chunk that begins before it is cut), from its log and
	// from its output record, up to about limit bytes.
	Output(dispatch string, from uint64, limit int) ([]Chunk, error)
	// WatchOutput returns a watch of the output of dispatches, none at first. It has to be closed.
	WatchOutput() *OutputWatch
	// OutputLogs returns the dispatches that have a log, in order.
	OutputLogs() ([]string, error)
	// DeleteOutput removes the dispatch's log; one that does not exist is no error. It is ErrBusy while a backup is under way,
	// which may still need it.
	DeleteOutput(dispatch string) error
	// NewBlob begins a body that is too large for a record. See [BlobWriter] for the order in which it has to be written.
	NewBlob() (BlobWriter, error)
	// ExtendBlob goes on with a body behind its first at bytes, which are what a record names; whatever stands behind them is
	// cut off now. So nobody else may write what the record belongs to from before the caller has read it until after the
	// commit that follows. A body that somebody extends just then is ErrInUse, one that is not there ErrNotFound, and one
	// that has fewer bytes is a [*BlobError].
	ExtendBlob(key string, at int64) (BlobWriter, error)
	// OpenBlob opens a body for reading, or returns ErrNotFound. It has to be closed.
	OpenBlob(key string) (BlobReader, error)
	// DeleteBlob removes a body; one that does not exist is no error. The record that names it has to go before it. Whoever
	// reads it just then keeps it. It is ErrBusy while a backup is under way, which may still need it.
	DeleteBlob(key string) error
	// Blobs returns the keys of all bodies, in order.
	Blobs() ([]string, error)
	// SweepBlobs removes the bodies of earlier boots that no record names, and what these have never finished, and warns of
	// each body that a record names and that is missing. It may take long; commits go on meanwhile. It is ErrBusy while a
	// backup is under way.
	SweepBlobs(ctx context.Context) (BlobSweep, error)

	// Compact gives the space of what was deleted back to the system, where the engine has not done so by itself. It may take
	// long, and slows commits down meanwhile: it is for quiet moments.
	Compact() error

	// Backup writes what the journal holds now, records and output, as one stream (see [ReadBackup]). It may take long, and so
	// may w; commits go on meanwhile.
	Backup(ctx context.Context, w io.Writer) (BackupInfo, error)

	// Sequence returns a number above every one that it returned before, in this boot and earlier ones. The order in line
	// comes from it, never from a clock.
	Sequence() uint64
	// Epoch is the number of this boot. It grows, not by ones.
	Epoch() uint64
	// StoreID names the store for its whole life.
	StoreID() string
	// Quarantined is how many records could not be decoded since the store was opened.
	Quarantined() int
	// Stats are counters for metrics.
	Stats() Stats
	// Close answers what waits with ErrClosed, and closes the store.
	Close() error
}

// Stats are the journal's counters since it was opened.
type Stats struct {
	Commits uint64        // operations made durable
	Syncs   uint64        // batches, each with one sync
	Sync    time.Duration // time spent in them
}
