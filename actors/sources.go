package actors

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// sweepSources removes the sources that no run names any more. One that was kept or used within the last hour is left
// alone: its run may be about to be committed, or was committed after the runs were read. All that uses a source says so
// behind the gate, and what is removed here is forgotten before the gate opens, so that whoever wants it next writes it
// again.
func (sys *System) sweepSources(ctx context.Context) (int, error) {
	now := time.Now()
	sources := make(map[string][]string) // record ids by digest, the head first
	err := sys.journal.Scan(persistence.KindSource, false, "", "", func(rec persistence.Record) bool {
		if digest, _, _ := strings.Cut(rec.ID, "/"); now.Sub(rec.Time) >= sourceRest {
			sources[digest] = append(sources[digest], rec.ID)
		}
		return ctx.Err() == nil
	})
	if err != nil || len(sources) == 0 {
		return 0, err
	}
	for _, ended := range []bool{false, true} {
		err := sys.scan(persistence.KindRun, ended, "", newBody[messages.RunRecord], func(_ persistence.Record, m proto.Message) bool {
			delete(sources, m.(*messages.RunRecord).GetSourceDigest())
			return ctx.Err() == nil
		})
		if err != nil {
			return 0, err
		}
	}
	if ctx.Err() != nil { // half of the runs say nothing about the other half's sources
		return 0, context.Cause(ctx)
	}
	return sys.sources.remove(ctx, sys.journal, sources)
}

// remove removes sources that are not in use.
func (b *sourceBook) remove(ctx context.Context, j persistence.Journal, sources map[string][]string) (int, error) {
	b.gate.Lock()
	defer b.gate.Unlock()
	b.used.Range(func(digest, at any) bool {
		if time.Since(at.(time.Time)) >= sourceRest {
			b.used.Delete(digest)
		}
		return true
	})
	out := removal{journal: j}
	for digest, ids := range sources {
		if _, used := b.used.Load(digest); used {
			continue
		}
		b.known.Delete(digest)
		for _, id := range ids { // the head first: a source that is there is whole
			if err := out.delete(ctx, persistence.KindSource, id); err != nil {
				return out.removed, fmt.Errorf("remove source %s: %w", digest, err)
			}
		}
	}
	return out.removed, out.flush(ctx)
}
