package badgerstore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swampd/swampd/messages"
)

const (
	// ballastFile takes up space in the data directory, to be given up when nearly none is left: what runs can then end, be
	// cancelled and be written down, however fast somebody else has filled the disk.
	ballastFile = "ballast"
	// ballastAgain is how long it is left at that when the ballast could not be made.
	ballastAgain = time.Minute
	// ballastPiece is how much of it is written at once where it cannot be reserved.
	ballastPiece = 1 << 20
)

// ballast is that file. It is made beside everything else, since that may take long on some file systems, and given up at
// once.
type ballast struct {
	path   string
	size   int64 // 0: there is none
	logger *slog.Logger

	held    bool      // it is there, whole. Guarded by the space's mutex, as the next one.
	tried   time.Time // when it could not be made; zero: it could
	stop    atomic.Bool
	making  sync.WaitGroup
	outcome chan error // of the making that is under way; nil: none is
}

func newBallast(config Config) *ballast {
	b := &ballast{path: filepath.Join(config.Dir, ballastFile), size: config.Ballast, logger: config.Logger}
	if info, err := os.Stat(b.path); err == nil {
		b.held = b.size > 0 && info.Size() >= b.size
	}
	return b
}

// make begins to make the ballast, unless it is there, or could not be made a moment ago.
func (b *ballast) make(now time.Time) {
	b.settle()
	if b.size <= 0 || b.held || b.outcome != nil || (!b.tried.IsZero() && now.Sub(b.tried) < ballastAgain) {
		return
	}
	b.tried = now
	b.stop.Store(false)
	outcome := make(chan error, 1)
	b.outcome = outcome
	b.making.Go(func() { outcome <- b.write() })
}

// settle takes note of a making that is over.
func (b *ballast) settle() {
	select {
	case err := <-b.outcome:
		b.outcome = nil
		if b.held = err == nil; b.held {
			b.tried = time.Time{}
		} else if !errors.Is(err, errGivenUp) {
			b.logger.Warn("no space is kept in reserve", messages.KeyDir, b.path, messages.KeyErr, err)
		}
	default:
	}
}

// giveUp removes the ballast, and what there is of one that is being made. It tells whether that has made room.
func (b *ballast) giveUp() bool {
	if b.outcome != nil {
		b.stop.Store(true)
		b.making.Wait()
	}
	b.settle()
	if !b.held {
		return false
	}
	if err := os.Remove(b.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.logger.Error("the reserve of space cannot be given up", messages.KeyDir, b.path, messages.KeyErr, err)
		return false
	}
	b.held = false
	return true
}

// close waits until nothing is made any more. The ballast stays.
func (b *ballast) close() {
	b.stop.Store(true)
	b.making.Wait()
}

var errGivenUp = errors.New("given up")

// write makes the file, whole or not at all.
func (b *ballast) write() (err error) {
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the reserve of space: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			err = errors.Join(err, os.Remove(b.path))
		}
	}()
	err = reserve(f, b.size)
	if errors.Is(err, errors.ErrUnsupported) {
		err = b.fill(f)
	}
	if err != nil {
		return fmt.Errorf("make the reserve of space: %w", err)
	}
	return nil
}

// fill writes what cannot be made smaller, for file systems that do not reserve.
func (b *ballast) fill(f *os.File) error {
	piece := make([]byte, ballastPiece)
	state := uint64(time.Now().UnixNano()) | 1
	for done := int64(0); done < b.size; done += ballastPiece {
		if b.stop.Load() {
			return errGivenUp
		}
		for i := range piece { // xorshift: it has to look like noise, no more
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			piece[i] = byte(state)
		}
		if _, err := f.WriteAt(piece[:min(ballastPiece, b.size-done)], done); err != nil {
			return err
		}
	}
	return f.Sync()
}
