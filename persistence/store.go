package persistence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// StoreConfig is what a [Store] is made of.
type StoreConfig struct {
	// Engine holds the records. Required. The store closes it.
	Engine Engine
	// Output holds the logs of output. Required. The store closes it.
	Output OutputLog
	// Blobs holds the bodies. Required. The store closes it.
	Blobs Blobs
	// StoreID and Generation are given to a store that has never been written; others keep theirs. StoreID is required.
	StoreID    string
	Generation uint64
	// Logger gets a warning for each record that cannot be decoded. Default: none.
	Logger *slog.Logger
	// Now is the clock that records are stamped with. Default: time.Now.
	Now func() time.Time
}

func (c StoreConfig) withDefaults() StoreConfig {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func (c StoreConfig) validate() error {
	switch {
	case c.Engine == nil:
		return errors.New("no engine")
	case c.Output == nil:
		return errors.New("no output log")
	case c.Blobs == nil:
		return errors.New("no blobs")
	case c.StoreID == "":
		return errors.New("no store id")
	}
	return nil
}

// Store is the [Journal] over an [Engine]. It owns one goroutine, the committer, from NewStore to Close.
type Store struct {
	engine     Engine
	output     OutputLog
	blobs      Blobs
	extending  extending
	committer  *committer
	followers  *followers
	quarantine quarantine
	watchers   watchers
	backups    backups
	storeID    string
	epoch      uint64
	counter    atomic.Uint64 // of Sequence, in the low 40 bits

	closing atomic.Bool
	users   atomic.Int64  // calls that are in the engine
	idle    chan struct{} // one value, when the last of them has left a closing store
	close   sync.Once
	closed  error // of the first Close
}

var _ Journal = (*Store)(nil)

// NewStore begins a boot of the store in the engine: its epoch is durable when NewStore returns.
func NewStore(config StoreConfig) (*Store, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("new store: %w", err)
	}
	meta, err := boot(config)
	if err != nil {
		return nil, err
	}
	s := &Store{
		engine: config.Engine, output: config.Output, blobs: config.Blobs, storeID: meta.StoreID, epoch: meta.Epoch,
		idle:       make(chan struct{}, 1),
		quarantine: quarantine{logger: config.Logger, seen: map[string]struct{}{}},
	}
	s.followers = newFollowers(s.Events)
	s.committer = newCommitter(config.Engine, config.Now, meta, s.quarantine.note, s.published)
	go s.committer.run()
	return s, nil
}

// boot writes the next epoch.
func boot(config StoreConfig) (Meta, error) {
	meta, err := ReadMeta(config.Engine)
	if err != nil {
		return Meta{}, err
	}
	if meta.StoreID == "" {
		meta.StoreID, meta.Generation = config.StoreID, config.Generation
	}
	if meta.Epoch >= maxEpoch {
		return Meta{}, fmt.Errorf("the store has been opened %d times, its numbers are used up", meta.Epoch)
	}
	meta.Format = FormatVersion
	meta.Epoch++
	var b Batch
	b.Put([]byte(keyStore), encodeStore(meta))
	b.finish(meta.Head)
	if err := config.Engine.Apply(&b); err != nil {
		return Meta{}, fmt.Errorf("write the epoch of this boot: %w", err)
	}
	meta.Head = b.Head
	return meta, nil
}

// enter is called before the engine is used; where it returns nil, leave has to follow.
func (s *Store) enter() error {
	s.users.Add(1)
	if s.closing.Load() {
		s.leave()
		return ErrClosed
	}
	return nil
}

func (s *Store) leave() {
	if s.users.Add(-1) == 0 && s.closing.Load() {
		signal(s.idle)
	}
}

// Commit implements [Journal]. It keeps nothing of c.
func (s *Store) Commit(ctx context.Context, c Commit) ([]uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	return s.committer.commit(ctx, &c)
}

// published is called by the committer with each operation that has become durable.
func (s *Store) published(op *operation) {
	if len(op.packs) > 0 && s.followers.any() {
		for i := range op.packs {
			s.followers.publish(&op.packs[i])
		}
	}
	for _, stream := range op.emptied {
		s.followers.drop(stream)
	}
	for i := range op.puts {
		if op.puts[i].kind == KindOutput {
			s.watchers.notify(op.puts[i].id)
		}
	}
}

// Follow implements [Journal].
func (s *Store) Follow(stream string, after uint64) *Follower { return s.followers.add(stream, after) }

// Sequence implements [Journal]: the epoch, and a counter below it.
func (s *Store) Sequence() uint64 { return s.epoch<<40 | s.counter.Add(1) }

// Epoch implements [Journal].
func (s *Store) Epoch() uint64 { return s.epoch }

// StoreID implements [Journal].
func (s *Store) StoreID() string { return s.storeID }

// Quarantined implements [Journal].
func (s *Store) Quarantined() int { return s.quarantine.count() }

// Stats implements [Journal].
func (s *Store) Stats() Stats {
	c := s.committer
	return Stats{Commits: c.commits.Load(), Syncs: c.syncs.Load(), Sync: time.Duration(c.syncTime.Load())}
}

// Failed is closed when a write has failed in a way that leaves open what the store holds. Every commit from then on
// returns [Store.Err]; the process has to end.
func (s *Store) Failed() <-chan struct{} { return s.committer.failure }

// Err is the failure, or nil.
func (s *Store) Err() error { return s.committer.failedWith() }

// BeginClose refuses every call from now on, without waiting for those that are under way. Close has to follow.
func (s *Store) BeginClose() {
	s.closing.Store(true)
	s.committer.beginClose()
	s.followers.close()
	s.watchers.notifyAll()
}

// Close implements [Journal]: the batch under way is finished, what waits is answered with [ErrClosed], and engine,
// output log and blobs are closed.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.BeginClose()
		<-s.committer.done
		for s.users.Load() != 0 {
			<-s.idle
		}
		if err := s.output.Close(); err != nil {
			s.closed = fmt.Errorf("close the output logs: %w", err)
		}
		if err := s.blobs.Close(); err != nil {
			s.closed = errors.Join(s.closed, fmt.Errorf("close the blobs: %w", err))
		}
		if err := s.engine.Close(); err != nil {
			s.closed = errors.Join(s.closed, fmt.Errorf("close the journal: %w", err))
		}
	})
	return s.closed
}
