package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

const (
	// retentionFirst is how long after the start it is looked for the first time: clients come first.
	retentionFirst = 10 * time.Second
	// removalSize bounds one commit of a removal, in records and commits of events.
	removalSize = 200
	// retiredAtOnce bounds how many workers and tokens are woken in one round, each.
	retiredAtOnce = 200
	// compactAfter is how many removals make it worth to ask the journal for their space, and quietCommits how many commits
	// since the round before are a quiet moment.
	compactAfter = 5000
	quietCommits = 100
)

// errInUse says that a run has something that lives, though it has ended.
var errInUse = errors.New("something of it has not ended")

// retention removes what is over and was kept for long enough.
func (sys *System) retention() {
	r := &retainer{sys: sys, keep: sys.cfg.Retention, reported: make(map[string]bool)}
	timer := time.NewTimer(min(retentionFirst, sys.cfg.Retention.Every))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			if err := r.round(sys.edges.ctx); err != nil && sys.edges.ctx.Err() == nil {
				sys.log.Warn("not all that is over was removed", slog.Any(messages.KeyErr, err))
			}
			timer.Reset(sys.cfg.Retention.Every)
		case <-sys.edges.ctx.Done():
			return
		}
	}
}

// retainer is retention between its rounds. Only its goroutine uses it.
type retainer struct {
	sys  *System
	keep Retention
	// swept: the logs of output were compared with the leases. A crash may have left some that nothing names.
	swept     bool
	sourcesAt time.Time // when sources were looked at
	// Of the data plane: the bodies were compared with the records, and when old writes were looked for.
	bodiesSwept bool
	requestsAt  time.Time
	logs        []string // of output, still to be removed
	reported    map[string]bool
	removed     int    // since the journal was compacted
	commits     uint64 // of the journal, at the end of the round before
}

// round looks at everything once. A failure of one part does not keep the others from theirs.
func (r *retainer) round(ctx context.Context) error {
	quiet := r.sys.journal.Stats().Commits-r.commits < quietCommits
	err := errors.Join(
		r.runs(ctx), r.sources(ctx), r.output(ctx), r.workers(), r.tokens(), r.data(ctx),
	)
	r.commits = r.sys.journal.Stats().Commits
	if err == nil && quiet && r.removed >= compactAfter && ctx.Err() == nil {
		r.removed = 0
		err = r.sys.journal.Compact()
	}
	return err
}

// runs removes ended runs.
func (r *retainer) runs(ctx context.Context) (err error) {
	var runs []endedRun
	err = r.sys.journal.Scan(persistence.KindRun, true, "", "", func(rec persistence.Record) bool {
		runs = append(runs, endedRun{rec.ID, rec.Time})
		return ctx.Err() == nil
	})
	if err != nil {
		return fmt.Errorf("read ended runs: %w", err)
	}
	out := removal{journal: r.sys.journal}
	defer func() {
		r.removed += out.removed
		if err != nil {
			r.swept = false // of some the record may be gone already, and the output not
		}
	}()
	var logs, bodies []string
	for _, id := range removable(runs, r.keep, time.Now()) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		gone, err := r.run(ctx, &out, id)
		switch {
		case errors.Is(err, errInUse):
			if !r.reported[id] {
				r.reported[id] = true
				r.sys.log.Warn("an ended run is not removed", slog.String(messages.KeyRun, id), slog.Any(messages.KeyErr, err))
			}
		case err != nil:
			return fmt.Errorf("remove run %s: %w", id, err)
		default:
			delete(r.reported, id)
			logs, bodies = append(logs, gone.logs...), append(bodies, gone.bodies...)
		}
	}
	if err := out.flush(ctx); err != nil {
		return fmt.Errorf("remove runs: %w", err)
	}
	r.logs = append(r.logs, logs...)
	r.sys.data.free(bodies...)
	return nil
}

// leftovers are what is not in records, and follows when the commits that remove these have been made.
type leftovers struct {
	logs   []string // of output, by their dispatches
	bodies []string // of outputs, by their keys
}

// run adds a run to a removal, what belongs to it first: a crash between two commits leaves a run of which something is
// missing, which the next round removes, and never something whose run is gone. What is left is what
// follows.
func (r *retainer) run(ctx context.Context, out *removal, id string) (left leftovers, err error) {
	if _, lives := r.sys.refs.Load(runAddress(id)); lives {
		return left, nil // somebody has just asked for it: the next round, then
	}
	parts, left, err := r.partsOf(id)
	if err != nil {
		return left, err
	}
	for _, d := range parts {
		if err := out.delete(ctx, d.Kind, d.ID); err != nil {
			return left, err
		}
	}
	if err := out.drop(ctx, id); err != nil {
		return left, err
	}
	return left, out.delete(ctx, persistence.KindRun, id)
}

// partsOf returns the records that belong to an ended run, and what is left once they are gone; or errInUse where one of them
// lives.
func (r *retainer) partsOf(run string) (parts []persistence.Delete, left leftovers, err error) {
	steps, err := r.sys.steps(run)
	if err != nil {
		return nil, left, err
	}
	for _, kind := range []persistence.Kind{persistence.KindPending, persistence.KindLease, persistence.KindOutput} {
		for _, ended := range []bool{false, true} {
			living := ""
			err := r.sys.journal.Scan(kind, ended, run+".", "", func(rec persistence.Record) bool {
				if persistence.RunOf(rec.ID) != run {
					return true // of one whose id begins like this one's
				}
				if !ended && kind != persistence.KindOutput {
					living = rec.ID
				}
				parts = append(parts, persistence.Delete{Kind: kind, ID: rec.ID})
				if kind == persistence.KindLease {
					left.lease(rec)
				}
				return living == ""
			})
			if err != nil {
				return nil, left, err
			}
			if living != "" {
				return nil, left, fmt.Errorf("%s %s: %w", kind, living, errInUse)
			}
		}
	}
	for _, s := range steps {
		if !messages.StepStatus(s.GetStatus()).Ended() {
			return nil, left, fmt.Errorf("step %s of job %s: %w", s.GetStep(), s.GetJob(), errInUse)
		}
		parts = append(parts, persistence.Delete{Kind: persistence.KindStep, ID: stepRecordID(run, s.GetOrdinal())})
	}
	return parts, left, nil
}

// lease notes what a lease leaves. A step's own record names no other body than that of its last lease.
func (l *leftovers) lease(rec persistence.Record) {
	dispatch, _, _ := strings.Cut(rec.ID, "/")
	l.logs = append(l.logs, dispatch)
	var body messages.LeaseRecord
	if proto.Unmarshal(rec.Body, &body) == nil && body.GetOutcome().GetOutputsBody() != nil { // else the next boot's sweep finds it
		l.bodies = append(l.bodies, body.GetOutcome().GetOutputsBody().GetKey())
	}
}

// sources removes sources without a run, from time to time.
func (r *retainer) sources(ctx context.Context) error {
	if !r.sourcesAt.IsZero() && time.Since(r.sourcesAt) < sourceRest {
		return nil
	}
	r.sourcesAt = time.Now()
	n, err := r.sys.sweepSources(ctx)
	r.removed += n
	if err != nil {
		return fmt.Errorf("remove sources: %w", err)
	}
	return nil
}

// output removes logs of output whose runs are gone. While a backup is under way they stay, and come next time.
func (r *retainer) output(ctx context.Context) error {
	if !r.swept {
		if err := r.orphans(ctx); err != nil {
			return fmt.Errorf("look for output without a run: %w", err)
		}
		r.swept = true
	}
	for len(r.logs) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := r.sys.journal.DeleteOutput(r.logs[0])
		if errors.Is(err, persistence.ErrBusy) {
			return nil
		}
		if err != nil {
			return err
		}
		r.logs = r.logs[1:]
	}
	r.logs = nil
	return nil
}

// orphans finds the logs of output that nothing names: a process that died between the commit that removed a run and the
// removal of its output left them.
func (r *retainer) orphans(ctx context.Context) error {
	logs, err := r.sys.journal.OutputLogs()
	if err != nil {
		return err
	}
	for _, dispatch := range logs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		run := persistence.RunOf(dispatch)
		if run == "" {
			continue
		}
		_, err := r.sys.journal.Get(persistence.KindRun, run)
		if err == nil {
			continue
		}
		if !errors.Is(err, persistence.ErrNotFound) {
			return err
		}
		named := false // by the leases of a run whose record cannot be read
		for _, ended := range []bool{false, true} {
			err := r.sys.journal.Scan(persistence.KindLease, ended, dispatch+"/", "", func(persistence.Record) bool {
				named = true
				return false
			})
			if err != nil {
				return err
			}
		}
		if !named {
			r.logs = append(r.logs, dispatch)
		}
	}
	return nil
}

// workers tells those that have been away for too long, and have no dispatch that lives, to forget themselves.
func (r *retainer) workers() error {
	if r.keep.Workers < 0 {
		return nil
	}
	before := time.Now().Add(-r.keep.Workers)
	var gone []string
	err := r.sys.scan(persistence.KindWorker, false, "", newBody[messages.WorkerRecord], func(rec persistence.Record, m proto.Message) bool {
		w := m.(*messages.WorkerRecord)
		paused := w.GetPauseHeld() || w.GetIntent() == string(messages.IntentPaused)
		if retirable(w.GetConnected(), paused, messages.GoTime(w.GetDisconnectedAt()), before) {
			gone = append(gone, rec.ID)
		}
		return len(gone) < retiredAtOnce
	})
	if err != nil {
		return fmt.Errorf("read workers: %w", err)
	}
	if len(gone) == 0 {
		return nil
	}
	busy := make(map[string]bool)
	err = r.sys.scan(persistence.KindLease, false, "", newBody[messages.LeaseRecord], func(_ persistence.Record, m proto.Message) bool {
		busy[m.(*messages.LeaseRecord).GetWorker()] = true
		return true
	})
	if err != nil {
		return fmt.Errorf("read leases: %w", err)
	}
	for _, name := range gone {
		if !busy[name] {
			r.sys.tell(workerAddress(name), retireWorker{before})
		}
	}
	return nil
}

// tokens tells those that ended long ago to forget themselves.
func (r *retainer) tokens() error {
	if r.keep.Runs < 0 {
		return nil
	}
	before := time.Now().Add(-r.keep.Runs)
	var gone []string
	err := r.sys.scan(persistence.KindToken, false, "", newBody[messages.TokenRecord], func(rec persistence.Record, m proto.Message) bool {
		t := m.(*messages.TokenRecord)
		end := tokenEnd(messages.TokenState(t.GetState()), messages.GoTime(t.GetRevokedAt()), messages.GoTime(t.GetExpiresAt()))
		if !end.IsZero() && end.Before(before) {
			gone = append(gone, rec.ID)
		}
		return len(gone) < retiredAtOnce
	})
	if err != nil {
		return fmt.Errorf("read tokens: %w", err)
	}
	for _, name := range gone {
		c := retireToken{before: before, last: true}
		err := r.sys.journal.Scan(persistence.KindBinding, false, name+"/", "", func(rec persistence.Record) bool {
			c.last = len(c.bindings) < removalSize-1 // the rest comes next time
			if c.last {
				c.bindings = append(c.bindings, rec.ID)
			}
			return c.last
		})
		if err != nil {
			return fmt.Errorf("read the bindings of token %s: %w", name, err)
		}
		r.sys.tell(tokenAddress(name), c)
	}
	return nil
}

// removal gathers what is removed into commits of a bounded size, in the order in which it was added.
type removal struct {
	journal persistence.Journal
	commit  persistence.Commit
	size    int
	removed int
}

func (b *removal) delete(ctx context.Context, kind persistence.Kind, id string) error {
	b.commit.Deletes = append(b.commit.Deletes, persistence.Delete{Kind: kind, ID: id})
	return b.added(ctx, 1)
}

// drop adds the removal of a whole stream, however long it is.
func (b *removal) drop(ctx context.Context, stream string) error {
	for {
		events, err := b.journal.Events(stream, 0, persistence.MaxDropped)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return nil
		}
		b.commit.Drops = append(b.commit.Drops, stream)
		if len(events) < persistence.MaxDropped {
			return b.added(ctx, len(events))
		}
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
}

func (b *removal) added(ctx context.Context, n int) error {
	if b.size += n; b.size < removalSize {
		return nil
	}
	return b.flush(ctx)
}

func (b *removal) flush(ctx context.Context) error {
	if b.size == 0 && len(b.commit.Drops) == 0 {
		return nil
	}
	b.commit.Class = persistence.ClassEnding
	if _, err := b.journal.Commit(ctx, b.commit); err != nil {
		return err
	}
	b.removed += len(b.commit.Deletes) + len(b.commit.Drops)
	b.commit, b.size = persistence.Commit{}, 0
	return nil
}
