package actors

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

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
	src := &messages.SourceRecord{}
	version, err := sys.read(persistence.KindSource, r.GetSourceDigest(), src)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return nil, fmt.Errorf("source of run %s: %w", r.GetRunId(), persistence.ErrNotFound)
	}
	plan, err := workflow.Parse(r.GetFile(), src.GetSource())
	if err != nil {
		return nil, fmt.Errorf("source of run %s: %w", r.GetRunId(), err)
	}
	sys.plans.put(r.GetSourceDigest(), plan)
	return plan, nil
}

// sourceBook knows which sources are durable already, so that a definition is written once and looked for once.
type sourceBook struct{ known sync.Map }

// keep makes a source durable before the first run that names it.
func (b *sourceBook) keep(ctx context.Context, j persistence.Journal, digest, source string) error {
	if _, ok := b.known.Load(digest); ok {
		return nil
	}
	body, err := proto.Marshal(&messages.SourceRecord{Source: []byte(source)})
	if err != nil {
		return fmt.Errorf("encode source: %w", err)
	}
	_, err = j.Commit(ctx, persistence.Commit{Class: persistence.ClassNewWork, Puts: []persistence.Put{
		{Kind: persistence.KindSource, ID: digest, State: "kept", Body: body},
	}})
	if err != nil && !errors.Is(err, persistence.ErrStaleWriter) { // stale: somebody has kept it
		return err
	}
	b.known.Store(digest, struct{}{})
	return nil
}

// stepNames takes a step's address apart.
func stepNames(a address) (run, job, step string, err error) {
	parts := strings.Split(a.id, "/")
	if len(parts) != 3 {
		return "", "", "", fmt.Errorf("%q is no address of a step", a.id)
	}
	return unescape(parts[0]), unescape(parts[1]), unescape(parts[2]), nil
}

// ordinalOf finds a step by its names.
func ordinalOf(plan *workflow.Plan, job, step string) (int, bool) {
	for i := range plan.Steps {
		if plan.Steps[i].Name == step && plan.Jobs[plan.Steps[i].Job].Name == job {
			return i, true
		}
	}
	return 0, false
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
