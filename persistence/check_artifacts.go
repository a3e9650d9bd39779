package persistence

import (
	"crypto/sha256"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// artifactSeen is what a check has seen of an artifact.
type artifactSeen struct {
	head         bool
	latest, last uint32 // as the head says
	highest      uint32 // of the versions that are there
	hasLatest    bool
}

func (c *checker) seen(name string) *artifactSeen {
	a := c.artifacts[name]
	if a == nil {
		a = &artifactSeen{}
		c.artifacts[name] = a
	}
	return a
}

// artifact comes before the versions, by the order of keys.
func (c *checker) artifact(id string, body []byte) {
	var r messages.ArtifactRecord
	if err := proto.Unmarshal(body, &r); err != nil {
		c.report.Find("artifact %q: %v", id, err)
		return
	}
	if r.GetName() != id {
		c.report.Find("artifact %q says that it is %q", id, r.GetName())
	}
	a := c.seen(id)
	a.head, a.latest, a.last = true, r.GetLatest(), r.GetLastVersion()
}

func (c *checker) version(id string, body []byte) {
	var v messages.ArtifactVersionRecord
	if err := proto.Unmarshal(body, &v); err != nil {
		c.report.Find("version %q: %v", id, err)
		return
	}
	if ArtifactVersionID(v.GetName(), v.GetVersion()) != id {
		c.report.Find("version %q says that it is %s", id, describeVersion(&v))
	}
	a := c.seen(v.GetName())
	a.highest = max(a.highest, v.GetVersion())
	a.hasLatest = a.hasLatest || v.GetVersion() == a.latest
	if v.GetBlob() != "" {
		c.report.Bodies = append(c.report.Bodies, refOfVersion(&v))
		return
	}
	if sum := sha256.Sum256(v.GetBody()); uint64(len(v.GetBody())) != v.GetSize() || string(sum[:]) != string(v.GetDigest()) {
		c.report.Find("the body of %s is another one than its size and digest say", describeVersion(&v))
	}
}

func (c *checker) compareArtifacts() {
	for _, name := range slices.Sorted(maps.Keys(c.artifacts)) {
		switch a := c.artifacts[name]; {
		case !a.head:
			c.report.Find("versions of artifact %q are there, and it is not", name)
		case a.highest > a.last:
			c.report.Find("artifact %q has a version %d, and says that its highest one was %d", name, a.highest, a.last)
		case a.latest > 0 && !a.hasLatest:
			c.report.Find("the latest version %d of artifact %q is missing", a.latest, name)
		}
	}
}
