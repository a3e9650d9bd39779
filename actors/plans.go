package actors

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
	"github.com/swampd/swampd/workflow"
)

// planCacheSize bounds the plans that are kept parsed, by the number of their steps together.
const planCacheSize = 200_000

// planCache keeps parsed workflows by the digest of their source: the same file is submitted again and again, and
// parsing it costs more than running it. Plans are never changed, so all runs of a source share one.
type planCache struct {
	mu     sync.Mutex
	plans  map[string]*list.Element
	recent *list.List // of *cachedPlan, the latest first
	steps  int
}

type cachedPlan struct {
	digest string
	plan   *workflow.Plan
}

func newPlanCache() *planCache {
	return &planCache{plans: make(map[string]*list.Element), recent: list.New()}
}

func (c *planCache) get(digest string) *workflow.Plan {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.plans[digest]
	if e == nil {
		return nil
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cachedPlan).plan
}

func (c *planCache) put(digest string, plan *workflow.Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plans[digest] != nil {
		return
	}
	c.plans[digest] = c.recent.PushFront(&cachedPlan{digest, plan})
	c.steps += len(plan.Steps)
	for c.steps > planCacheSize && c.recent.Len() > 1 {
		last := c.recent.Back()
		old := c.recent.Remove(last).(*cachedPlan)
		delete(c.plans, old.digest)
		c.steps -= len(old.plan.Steps)
	}
}

// sourceDigest names a workflow's source.
func sourceDigest(source string) string {
	sum := sha256.Sum256([]byte(source))
	return hex.EncodeToString(sum[:])
}

// parse returns the plan of a source that somebody has sent, with all its mistakes as the details of a fault.
func (sys *System) parse(file, source string) (*workflow.Plan, string, error) {
	digest := sourceDigest(source)
	if plan := sys.plans.get(digest); plan != nil {
		return plan, digest, nil
	}
	plan, err := workflow.Parse(file, []byte(source))
	if err != nil {
		lines := strings.Split(err.Error(), "\n")
		return nil, "", &messages.Fault{Code: messages.CodeInvalid, Text: lines[0], Details: lines}
	}
	sys.plans.put(digest, plan)
	return plan, digest, nil
}

// planOf is the plan of a run that is in the journal.
func (sys *System) planOf(r *messages.RunRecord) (*workflow.Plan, error) {
	if plan := sys.plans.get(r.GetSourceDigest()); plan != nil {
		return plan, nil
	}
	source, err := sys.sources.read(sys, r.GetSourceDigest())
	if err != nil {
		return nil, fmt.Errorf("source of run %s: %w", r.GetRunId(), err)
	}
	plan, err := workflow.Parse(r.GetFile(), source)
	if err != nil {
		return nil, fmt.Errorf("source of run %s: %w", r.GetRunId(), err)
	}
	sys.plans.put(r.GetSourceDigest(), plan)
	return plan, nil
}

// sourceBook knows which sources are durable already, so that a definition is written once and looked for once. It knows
// also which were wanted lately: their runs may be about to be committed, so they must not be swept (see sources.go).
type sourceBook struct {
	known sync.Map     // digests
	used  sync.Map     // digest to the time of its last use
	gate  sync.RWMutex // held for reading while a source is read or made durable, for writing while some are removed
}

// sourcePart bounds one record of a source, well within one commit.
const sourcePart = 256 << 10

// keep makes a source durable before the first run that names it. Its head comes last, so that a source which is there
// is whole.
func (b *sourceBook) keep(ctx context.Context, j persistence.Journal, digest, source string) error {
	b.gate.RLock()
	defer b.gate.RUnlock()
	b.used.Store(digest, time.Now())
	if _, ok := b.known.Load(digest); ok {
		return nil
	}
	head, rest := source[:min(len(source), sourcePart)], source[min(len(source), sourcePart):]
	more := uint32(0)
	for part := range slices.Chunk([]byte(rest), sourcePart) {
		more++
		if err := putSource(ctx, j, partID(digest, more), &messages.SourceRecord{Source: part}); err != nil {
			return err
		}
	}
	if err := putSource(ctx, j, digest, &messages.SourceRecord{Source: []byte(head), More: more}); err != nil {
		return err
	}
	b.known.Store(digest, struct{}{})
	return nil
}

func partID(digest string, part uint32) string {
	return digest + "/" + strconv.FormatUint(uint64(part), 10)
}

func putSource(ctx context.Context, j persistence.Journal, id string, r *messages.SourceRecord) error {
	body, err := proto.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode source: %w", err)
	}
	_, err = j.Commit(ctx, persistence.Commit{Class: persistence.ClassNewWork, Puts: []persistence.Put{
		{Kind: persistence.KindSource, ID: id, State: "kept", Body: body},
	}})
	if errors.Is(err, persistence.ErrStaleWriter) { // the same bytes are there: the id is their digest
		return nil
	}
	return err
}

// read returns a source that has been kept.
func (b *sourceBook) read(sys *System, digest string) ([]byte, error) {
	b.gate.RLock()
	defer b.gate.RUnlock()
	head := &messages.SourceRecord{}
	version, err := sys.read(persistence.KindSource, digest, head)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return nil, persistence.ErrNotFound
	}
	source := head.GetSource()
	for n := uint32(1); n <= head.GetMore(); n++ {
		part := &messages.SourceRecord{}
		if version, err = sys.read(persistence.KindSource, partID(digest, n), part); err != nil {
			return nil, err
		}
		if version == 0 {
			return nil, fmt.Errorf("part %d: %w", n, persistence.ErrNotFound)
		}
		source = append(source, part.GetSource()...)
	}
	b.known.Store(digest, struct{}{})
	return source, nil
}

// stepNames takes a step's address apart.
func stepNames(a address) (run, job, step string, err error) {
	parts := strings.Split(a.id, "/")
	if len(parts) != 3 {
		return "", "", "", fmt.Errorf("%q is no address of a step", a.id)
	}
	return unescape(parts[0]), unescape(parts[1]), unescape(parts[2]), nil
}

// shipped is the orchestrator's environment as dispatches carry it.
func (sys *System) shipped() []*messages.KeyValue {
	var list []*messages.KeyValue
	for _, e := range sys.cfg.ShipEnv {
		k, v, _ := strings.Cut(e, "=")
		list = append(list, &messages.KeyValue{Key: k, Value: v})
	}
	return list
}
