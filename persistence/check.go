package persistence

import (
	"bytes"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// findingsKept is how many findings a check names; the others it only counts.
const findingsKept = 100

// CheckReport is what a look at every key of a store has found.
type CheckReport struct {
	Meta     Meta
	Records  map[Kind]int
	Former   int // former versions of workers and tokens
	Events   int
	SetAside int // values that did not decode at some time, and were kept out of the way
	// Findings say what is wrong, one sentence each: the first hundred. Wrong counts all of them.
	Findings []string
	Wrong    int
	// Acknowledged is, by dispatch, how far its log of output has to reach: workers were told that so much is durable.
	Acknowledged map[string]uint64
	// Bodies are what records say of the bodies that they name.
	Bodies []BlobRef
}

// Find adds a finding.
func (c *CheckReport) Find(format string, args ...any) {
	c.Wrong++
	if len(c.Findings) < findingsKept {
		c.Findings = append(c.Findings, fmt.Sprintf(format, args...))
	}
}

// CheckStore looks at every key in the engine: that it decodes and stands where it belongs, that the events of each stream
// are dense, and that what belongs to a run has its run. It changes nothing.
func CheckStore(engine Engine) (CheckReport, error) {
	c := checker{
		report: CheckReport{Records: map[Kind]int{}, Acknowledged: map[string]uint64{}},
		runs:   map[string]bool{}, owners: map[string]string{}, artifacts: map[string]*artifactSeen{},
	}
	err := engine.View(func(r Reader) (err error) {
		if c.report.Meta, err = readMeta(r); err != nil {
			c.report.Find("the store's description: %v", err)
		}
		return r.Scan(nil, nil, false, func(key, value []byte) bool {
			c.look(key, value)
			return true
		})
	})
	if err != nil {
		return CheckReport{}, fmt.Errorf("check the records: %w", err)
	}
	for run, of := range c.owners {
		if _, there := c.runs[run]; !there {
			c.report.Find("%s belongs to run %q, and there is none", of, run)
		}
	}
	c.compareArtifacts()
	return c.report, nil
}

type checker struct {
	report CheckReport
	runs   map[string]bool   // by id; whether it has ended
	owners map[string]string // runs that something belongs to, and what

	artifacts map[string]*artifactSeen

	stream string // whose events came last
	last   uint64 // the number of its last event; 0: the next one may have any
}

func (c *checker) look(key, value []byte) {
	switch {
	case bytes.HasPrefix(key, []byte(prefixMeta)):
		if name := string(key); name != keyStore && name != keyHead {
			c.report.Find("key %q is of no known kind", key)
		}
	case bytes.HasPrefix(key, []byte(prefixQuarantine)):
		c.report.SetAside++
	case bytes.HasPrefix(key, []byte(prefixEvents)):
		c.pack(key, value)
	default:
		c.record(key, value)
	}
}

func (c *checker) pack(key, value []byte) {
	stream, last, ok := splitNumbered(key, prefixEvents)
	if !ok {
		c.report.Find("key %q is of no known kind", key)
		return
	}
	first, count := uint64(0), 0
	err := decodePack(value, last, func(e Event) {
		if count == 0 {
			first = e.Seq
		}
		count++
	})
	if stream != c.stream {
		c.stream, c.last = stream, 0
		c.owners[stream] = "a stream of events"
		if first > 1 && !c.runs[stream] { // of an ended run the oldest may have been removed, and the rest is about to be
			c.report.Find("events 1 to %d of %q are missing", first-1, stream)
		}
	} else if count > 0 && c.last != 0 && first != c.last+1 {
		c.report.Find("events %d to %d of %q are missing", c.last+1, first-1, stream)
	}
	c.report.Events += count
	switch c.last = last; {
	case err != nil:
		c.report.Find("events up to %d of %q: %v", last, stream, err)
		c.last = 0
	case count == 0: // it marks where events were set aside
		c.last = 0
	}
}

func (c *checker) record(key, value []byte) {
	h, err := decodeRecordAt(key, value)
	if err != nil {
		if kind, id := describeKey(key); kind != "" {
			c.report.Find("%s %q: %v", kind, id, err)
		} else {
			c.report.Find("key %q is of no known kind", key)
		}
		return
	}
	if bytes.HasPrefix(key, []byte(prefixHistory)) {
		c.report.Former++
		return
	}
	c.report.Records[h.kind]++
	id := string(h.id)
	if h.kind == KindLease || h.kind == KindStep { // of artifacts there is more to say
		if ref, named, err := blobRef(h.kind, h.body); err == nil && named {
			c.report.Bodies = append(c.report.Bodies, ref)
		}
	}
	switch h.kind {
	case KindRun:
		c.runs[id] = h.ended
	case KindStep:
		run, _, _ := strings.Cut(id, "/")
		c.owners[run] = fmt.Sprintf("step %q", id)
	case KindLease:
		c.lease(id, h.body)
	case KindPending:
		c.owners[RunOf(id)] = fmt.Sprintf("pending dispatch %q", id)
	case KindOutput:
		c.owners[RunOf(id)] = fmt.Sprintf("output %q", id)
	case KindArtifact:
		c.artifact(id, h.body)
	case KindArtifactVersion:
		c.version(id, h.body)
	case KindSource, KindToken, KindBinding, KindWorker, KindScheduler, KindDataRequest:
	}
}

func (c *checker) lease(id string, body []byte) {
	var l messages.LeaseRecord
	if err := proto.Unmarshal(body, &l); err != nil {
		c.report.Find("lease %q: %v", id, err)
		return
	}
	c.owners[RunOf(id)] = fmt.Sprintf("lease %q", id)
	if !l.GetLogged() {
		return
	}
	end := l.GetOffset()
	if o := l.GetOutcome(); o != nil { // what came after it was acknowledged, and not kept
		end = o.GetFinalOffset()
	}
	dispatch := l.GetDispatchId()
	c.report.Acknowledged[dispatch] = max(c.report.Acknowledged[dispatch], uint64(end))
}
