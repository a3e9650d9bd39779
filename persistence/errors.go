package persistence

import (
	"errors"
	"fmt"
)

// Errors that belong to one operation and go to its actor.
var (
	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("persistence: not found")
	// ErrStaleWriter: a put named a version that is not the current one. Somebody wrote a record that is not theirs: a fault.
	ErrStaleWriter = errors.New("persistence: stale writer")
	// ErrConditionFailed: a condition did not hold. Nothing was written; the plan that stood on it is void.
	ErrConditionFailed = errors.New("persistence: condition failed")
	// ErrNoSpace: too little free space for a commit of this class.
	ErrNoSpace = errors.New("persistence: no space")
	// ErrTooLarge: the operation is above MaxEntries or MaxCommitBytes.
	ErrTooLarge = errors.New("persistence: operation too large")
	// ErrBusy: not while a backup is under way.
	ErrBusy = errors.New("persistence: a backup is under way")
	// ErrInUse: somebody else writes this body.
	ErrInUse = errors.New("persistence: somebody else writes it")
	// ErrClosed: the journal is closed or closing.
	ErrClosed = errors.New("persistence: journal closed")
)

// ErrSync says that what was to be made durable may not be, and the page cache cannot be asked. The process has to end.
var ErrSync = errors.New("persistence: sync failed")

// OfOperation tells whether err belongs to one operation. Any other error of a commit ends the process.
func OfOperation(err error) bool {
	return errors.Is(err, ErrStaleWriter) || errors.Is(err, ErrConditionFailed) ||
		errors.Is(err, ErrNoSpace) || errors.Is(err, ErrTooLarge)
}

// LockedError says that another process holds the data directory.
type LockedError struct {
	Dir string
	PID int // 0: unknown
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("data directory %s is in use by another process: stop it, or choose another --data-dir", e.Dir)
	}
	return fmt.Sprintf("data directory %s is in use by process %d: stop it, or choose another --data-dir", e.Dir, e.PID)
}

// NewerFormatError says that a newer release wrote the store.
type NewerFormatError struct {
	Dir          string
	Found, Known int
}

func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("data directory %s has store format %d, this program knows up to %d: run the newer swampd, or restore a backup made by this one",
		e.Dir, e.Found, e.Known)
}

// DamagedError says that the store is not what it was when it was last closed or written. Next is what to do.
type DamagedError struct {
	Dir  string
	What string
	Next string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("data directory %s is damaged: %s: %s", e.Dir, e.What, e.Next)
}

// BlobError says that a body is not what a record says that it is.
type BlobError struct {
	Key  string
	What string
}

func (e *BlobError) Error() string { return fmt.Sprintf("body %s is damaged: %s", e.Key, e.What) }
