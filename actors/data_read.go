package actors

import (
	"encoding/hex"
	"errors"
	"io"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// An Artifact is one version that is being read, as long as it was when it was opened. It has to be closed.
type Artifact struct {
	Item *messages.ArtifactItem
	// Tag is its strong ETag, with the quotes.
	Tag string
	// Digest is the SHA-256 of what can be read.
	Digest []byte
	io.ReadSeeker
	close func() error
}

// Close lets go of the body.
func (a *Artifact) Close() error { return a.close() }

// openTries is how often a version is looked for whose body is gone: it was removed between two looks.
const openTries = 5

// Open opens a version for reading; 0 is the latest. What was opened stays whole, also if it is removed meanwhile.
func (d *Data) Open(name string, version uint32) (*Artifact, error) {
	if err := d.sys.usable(); err != nil {
		return nil, err
	}
	if err := CheckArtifactName(name); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		a, err := d.open(name, version)
		if tries < openTries && errors.Is(err, persistence.ErrNotFound) {
			continue
		}
		return a, d.fault(err)
	}
}

func (d *Data) open(name string, version uint32) (*Artifact, error) {
	head := &messages.ArtifactRecord{}
	if _, err := d.sys.read(persistence.KindArtifact, name, head); err != nil {
		return nil, err
	}
	at := version
	if version == 0 {
		at = head.GetLatest()
	}
	if at == 0 {
		return nil, noVersion(name, version)
	}
	v, _, err := d.version(name, at)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, noVersion(name, version)
	}
	item, err := d.item(head, v)
	if err != nil {
		return nil, err
	}
	a := &Artifact{
		Item: item, Tag: artifactTag(v.GetVersion(), hex.EncodeToString(v.GetDigest())), Digest: v.GetDigest(),
		ReadSeeker: strings.NewReader(string(v.GetBody())), close: func() error { return nil },
	}
	if v.GetBlob() != "" {
		r, err := d.sys.journal.OpenBlob(v.GetBlob())
		if err != nil {
			return nil, err
		}
		a.ReadSeeker, a.close = io.NewSectionReader(r, 0, int64(v.GetSize())), r.Close // what is behind it was never committed
	}
	return a, nil
}

// item is what is told of a version. One that an append may still make longer is open.
func (d *Data) item(head *messages.ArtifactRecord, v *messages.ArtifactVersionRecord) (*messages.ArtifactItem, error) {
	open := v.GetOpen() && v.GetVersion() == head.GetLastVersion()
	if open && v.GetDispatchId() != "" {
		open = false
		err := d.sys.journal.Scan(persistence.KindLease, false, v.GetDispatchId()+"/", "", func(r persistence.Record) bool {
			open = r.State == string(messages.LeaseActive)
			return !open
		})
		if err != nil {
			return nil, err
		}
	}
	return artifactItem(v, open), nil
}

// pageLimit is how many items a page has.
func pageLimit(asked int32) int {
	if asked <= 0 {
		return pageDefault
	}
	return min(int(asked), pageMax)
}

// list has the latest versions, by name.
func (d *Data) list(p *messages.DataListParams) (proto.Message, error) {
	result := &messages.DataListResult{}
	limit := pageLimit(p.GetLimit())
	var itemErr error
	err := d.eachLatest(p.GetPrefix(), p.GetCursor(), func(item *messages.ArtifactItem, err error) bool {
		if itemErr = err; err != nil {
			return false
		}
		if len(result.GetItems()) == limit {
			result.Cursor = &result.Items[limit-1].Name
			return false
		}
		result.Items = append(result.Items, item)
		return true
	})
	result.Count = int32(len(result.GetItems()))
	return result, d.fault(errors.Join(err, itemErr))
}

// eachLatest calls fn for the latest version of each artifact whose name is above after, by name.
func (d *Data) eachLatest(prefix, after string, fn func(*messages.ArtifactItem, error) bool) error {
	return d.sys.journal.Scan(persistence.KindArtifact, false, prefix, after, func(rec persistence.Record) bool {
		head := &messages.ArtifactRecord{}
		if proto.Unmarshal(rec.Body, head) != nil || head.GetLatest() == 0 {
			return true // deleted; or of a newer form, as the journal has a checksum
		}
		v, _, err := d.version(head.GetName(), head.GetLatest())
		if err == nil && v == nil { // it was removed meanwhile
			return true
		}
		var item *messages.ArtifactItem
		if err == nil {
			item, err = d.item(head, v)
		}
		return fn(item, err)
	})
}

// versions has the versions of one artifact, the newest first.
func (d *Data) versions(p *messages.DataVersionsParams) (proto.Message, error) {
	if err := CheckArtifactName(p.GetName()); err != nil {
		return nil, err
	}
	before := ""
	if p.GetCursor() != "" {
		n, err := strconv.ParseUint(p.GetCursor(), 10, 32)
		if err != nil {
			return nil, messages.Faultf(messages.CodeInvalid, "%q is no cursor of this list", p.GetCursor())
		}
		before = persistence.ArtifactVersionID(p.GetName(), uint32(n))
	}
	head := &messages.ArtifactRecord{}
	at, err := d.sys.read(persistence.KindArtifact, p.GetName(), head)
	if err != nil {
		return nil, d.fault(err)
	}
	if at == 0 || head.GetLatest() == 0 {
		return nil, noVersion(p.GetName(), 0)
	}
	result := &messages.DataVersionsResult{}
	limit := pageLimit(p.GetLimit())
	var itemErr error
	err = d.sys.journal.ScanBack(persistence.KindArtifactVersion, false, persistence.ArtifactVersionPrefix(p.GetName()), before, func(rec persistence.Record) bool {
		v := &messages.ArtifactVersionRecord{}
		if proto.Unmarshal(rec.Body, v) != nil {
			return true // the journal has a checksum: this is a record of a newer form
		}
		if len(result.GetItems()) == limit {
			cursor := strconv.FormatUint(uint64(result.GetItems()[limit-1].GetVersion()), 10)
			result.Cursor = &cursor
			return false
		}
		var item *messages.ArtifactItem
		if item, itemErr = d.item(head, v); itemErr == nil {
			result.Items = append(result.Items, item)
		}
		return itemErr == nil
	})
	result.Count = int32(len(result.GetItems()))
	return result, d.fault(errors.Join(err, itemErr))
}
