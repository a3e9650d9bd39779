package actors

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// Records of the data plane. They have no actor: what makes a write safe stands in its one commit.
const (
	recordArtifact        = "artifact"
	recordArtifactVersion = "version"
	recordDataRequest     = "request"
)

// inlineBody is how large a body may be that stands in its record.
const inlineBody = 64 << 10

// keptVersions is how many versions of an artifact are kept: the newest.
const keptVersions = 20

// The methods of writes.
const (
	methodPut    = "PUT"
	methodAppend = "POST"
	methodDelete = "DELETE"
)

// A Writer is who writes, as its credential says.
type Writer struct {
	// Dispatch and Generation name the lease that has to be active; empty: a client with a server token, which ends never.
	Dispatch   string
	Generation uint32
	// Run, Job, Step and Worker are what the dispatch is of.
	Run, Job, Step, Worker string
}

// dataWrite is a write whose body has come.
type dataWrite struct {
	writer Writer
	method string
	name   string
	// request is the id of the record that remembers the write; empty: it is not remembered. digest is what a repeat has to
	// be equal in.
	request     string
	digest      []byte
	kind        string
	contentType string
	version     uint32 // the one to delete; 0: all
	match       tagMatch
	at          time.Time
}

// dataBody is a body as a record holds it.
type dataBody struct {
	size   uint64
	digest []byte
	inline []byte
	blob   string
	// state is what the digest goes on from when more is appended.
	state []byte
}

// artifactBook is what the journal has of an artifact, as far as a write needs it.
type artifactBook struct {
	head    *messages.ArtifactRecord // nil: none
	version uint64                   // of the head's record
	// latest is the latest version, nil: there is none; latestAt is the version of its record.
	latest   *messages.ArtifactVersionRecord
	latestAt uint64
	// going are the versions that the write removes, or would: all, the one named, or what is too old after it.
	going []*messages.ArtifactVersionRecord
	// next is the version that is the latest once the named one is gone; 0: none.
	next uint32
	// repeated is the write that had the same request id.
	repeated *messages.DataRequestRecord
}

// dataDone is how a write went.
type dataDone struct {
	item    *messages.ArtifactItem // nil after a delete
	created bool                   // the artifact, or its version
	// frees are the bodies that no record names any more.
	frees []string
}

// extends is the version that an append of the writer makes longer; nil: it makes a new one. A version is open for the writer
// that began it, until the artifact gets another one: also one that was deleted since.
func (b artifactBook) extends(w Writer) *messages.ArtifactVersionRecord {
	v := b.latest
	if v == nil || !v.GetOpen() || v.GetDispatchId() != w.Dispatch || v.GetVersion() != b.head.GetLastVersion() {
		return nil
	}
	return v
}

// repeat answers a write whose request id is known. It is false where there is none.
func (b artifactBook) repeat(w dataWrite) (dataDone, bool, error) {
	r := b.repeated
	if r == nil {
		return dataDone{}, false, nil
	}
	if r.GetName() != w.name || r.GetMethod() != w.method || !bytes.Equal(r.GetDigest(), w.digest) {
		return dataDone{}, true, messages.Faultf(messages.CodeConflict,
			"the request id was used for another write, %s of %s: make a new id for each write", r.GetMethod(), r.GetName())
	}
	return dataDone{item: r.GetAnswer(), created: r.GetAnswer() != nil && w.method == methodPut}, true, nil
}

// refuses tells why a write cannot be, as things are.
func (b artifactBook) refuses(w dataWrite) error {
	switch {
	case w.method == methodDelete && len(b.going) == 0:
		return noVersion(w.name, w.version)
	case w.method != methodDelete && b.head.GetLastVersion() == math.MaxUint32:
		return messages.Faultf(messages.CodeConflict, "artifact %s has had all versions that there can be", w.name)
	default:
		return w.match.check(b.latest)
	}
}

// decideWrite is the one commit of a write, with what there is of it and of the artifact. body is that of the version after it,
// which for an append to an open one is more than what was sent.
func decideWrite(b artifactBook, w dataWrite, body dataBody) (dataDone, decision, error) {
	if done, known, err := b.repeat(w); known {
		return done, decision{}, err
	}
	if err := b.refuses(w); err != nil {
		return dataDone{}, decision{}, err
	}
	d := decision{class: classData}
	if w.writer.Dispatch != "" {
		d.alive = leaseID(w.writer.Dispatch, w.writer.Generation)
	}
	var done dataDone
	if w.method == methodDelete {
		d.writes = append(d.writes, b.headAfter(w, b.head.GetLastVersion(), b.next))
	} else {
		done = b.writeVersion(w, body, &d)
	}
	for _, v := range b.going {
		d.erases = append(d.erases, erase{recordArtifactVersion, artifactVersionID(v.GetName(), v.GetVersion())})
		if v.GetBlob() != "" {
			done.frees = append(done.frees, v.GetBlob())
		}
	}
	if w.request != "" {
		d.writes = append(d.writes, write{kind: recordDataRequest, id: w.request, state: "done", body: &messages.DataRequestRecord{
			Name: w.name, Method: w.method, Digest: w.digest, At: messages.Time(w.at), Answer: done.item,
		}})
	}
	return done, d, nil
}

// writeVersion puts the version that is made or made longer into the commit.
func (b artifactBook) writeVersion(w dataWrite, body dataBody, d *decision) dataDone {
	v, replaces := &messages.ArtifactVersionRecord{
		Name: w.name, Version: b.head.GetLastVersion() + 1, Kind: w.kind, ContentType: w.contentType, Open: w.method == methodAppend,
		CreatedAt: messages.Time(w.at), RunId: w.writer.Run, Job: w.writer.Job, Step: w.writer.Step, DispatchId: w.writer.Dispatch,
		Worker: w.writer.Worker,
	}, uint64(0)
	if open := b.extends(w.writer); w.method == methodAppend && open != nil {
		v, replaces = proto.CloneOf(open), b.latestAt
		d.requires = append(d.requires, require{recordArtifact, w.name, b.version}) // it is still the latest
	} else {
		d.writes = append(d.writes, b.headAfter(w, v.GetVersion(), v.GetVersion()))
	}
	v.Size, v.Digest, v.Body, v.Blob = body.size, body.digest, body.inline, body.blob
	if v.GetOpen() {
		v.HashState = body.state
	}
	d.writes = append(d.writes, write{
		kind: recordArtifactVersion, id: artifactVersionID(w.name, v.GetVersion()), replaces: replaces, state: v.GetKind(), body: v,
	})
	return dataDone{item: artifactItem(v, v.GetOpen()), created: replaces == 0}
}

func (b artifactBook) headAfter(w dataWrite, last, latest uint32) write {
	state := "current"
	if latest == 0 {
		state = "deleted"
	}
	return write{kind: recordArtifact, id: w.name, replaces: b.version, state: state, body: &messages.ArtifactRecord{
		Name: w.name, LastVersion: last, Latest: latest, UpdatedAt: messages.Time(w.at),
	}}
}

// tooOld is the version that goes when the next one comes; 0: none.
func tooOld(last uint32) uint32 {
	if last < keptVersions {
		return 0
	}
	return last + 1 - keptVersions
}

// artifactVersionID is persistence.ArtifactVersionID.
func artifactVersionID(name string, version uint32) string {
	return fmt.Sprintf("%s\x00%010d", name, version)
}

// noVersion says that there is no such artifact, or no such version of it.
func noVersion(name string, version uint32) error {
	if version == 0 {
		return messages.Faultf(messages.CodeNotFound, "no artifact %s", name)
	}
	return messages.Faultf(messages.CodeNotFound, "no version %d of artifact %s", version, name)
}

// artifactItem is what is told of a version.
func artifactItem(v *messages.ArtifactVersionRecord, open bool) *messages.ArtifactItem {
	return &messages.ArtifactItem{
		Name: v.GetName(), Version: v.GetVersion(), Kind: v.GetKind(), ContentType: v.GetContentType(), Size: float64(v.GetSize()),
		Digest: hex.EncodeToString(v.GetDigest()), Open: open, CreatedAt: v.GetCreatedAt(), RunId: optional(v.GetRunId()),
		Job: optional(v.GetJob()), Step: optional(v.GetStep()), DispatchId: optional(v.GetDispatchId()), Worker: optional(v.GetWorker()),
	}
}

// ArtifactTag is the strong ETag of a version, with its quotes.
func ArtifactTag(item *messages.ArtifactItem) string {
	return artifactTag(item.GetVersion(), item.GetDigest())
}

// artifactTag is the strong ETag of a version at the length that it has.
func artifactTag(version uint32, digest string) string {
	return `"` + strconv.FormatUint(uint64(version), 10) + "-" + digest + `"`
}

// tagMatch is what a write expects of the latest version: If-Match and If-None-Match, as they were sent.
type tagMatch struct{ match, noneMatch string }

// check refuses a write that expects something else.
func (m tagMatch) check(latest *messages.ArtifactVersionRecord) error {
	tag := ""
	if latest != nil {
		tag = artifactTag(latest.GetVersion(), hex.EncodeToString(latest.GetDigest()))
	}
	if m.match != "" && !tagListed(m.match, tag) {
		return messages.Faultf(messages.CodePreconditionFailed, "the latest version is not the expected one: read it and write again")
	}
	if m.noneMatch != "" && tagListed(m.noneMatch, tag) {
		return messages.Faultf(messages.CodePreconditionFailed, "there is a version already that was not expected")
	}
	return nil
}

// tagListed tells whether a list of tags has the given one; "*" is any that there is. A weak tag is never equal.
func tagListed(list, tag string) bool {
	if tag == "" {
		return false
	}
	return strings.TrimSpace(list) == "*" || slices.ContainsFunc(strings.Split(list, ","), func(t string) bool { return strings.TrimSpace(t) == tag })
}
