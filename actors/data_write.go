package actors

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// A WriteRequest is what a Put or an Append carries.
type WriteRequest struct {
	Name string
	// ContentType is kept with the version; empty is application/octet-stream.
	ContentType string
	// RequestID makes a repeat safe; empty: a repeat is another write.
	RequestID string
	// IfMatch and IfNoneMatch are lists of tags that the latest version has, or has not, to have; "*" is any.
	IfMatch, IfNoneMatch string
	// Body is read to its end. Its errors are passed on.
	Body io.Reader
	// Verify is called with the SHA-256 of the body once all of it has come; its error refuses the write. It may be nil.
	Verify func([sha256.Size]byte) error
}

// A DeleteRequest is what a Delete carries.
type DeleteRequest struct {
	Name                 string
	Version              uint32 // 0: all
	RequestID            string
	IfMatch, IfNoneMatch string
}

// Written is what a Put or an Append is answered, also where it is a repeat.
type Written struct {
	Item    *messages.ArtifactItem
	Created bool // a version, which an append to an open one does not
}

// Put writes a new version, which is closed. When it returns without an error the version is durable.
func (d *Data) Put(ctx context.Context, w Writer, req WriteRequest) (Written, error) {
	return d.write(ctx, w, req, methodPut)
}

// Append writes to the end of the version that the writer has open, or begins one. When it returns without an error what was
// appended is durable.
func (d *Data) Append(ctx context.Context, w Writer, req WriteRequest) (Written, error) {
	return d.write(ctx, w, req, methodAppend)
}

func (d *Data) write(ctx context.Context, w Writer, req WriteRequest, method string) (Written, error) {
	if err := d.sys.usable(); err != nil {
		return Written{}, err
	}
	contentType, kind, err := contentTypeOf(req.ContentType)
	if err = errors.Join(CheckArtifactName(req.Name), checkRequestID(req.RequestID), err); err != nil {
		return Written{}, err
	}
	if method == methodAppend && kind == artifactJSON {
		return Written{}, messages.Faultf(messages.CodeInvalid, "a JSON document is put whole: append lines as application/x-ndjson")
	}
	request := dataWrite{
		writer: w, method: method, name: req.Name, request: requestID(w, req.RequestID), kind: kind, contentType: contentType,
		match: tagMatch{req.IfMatch, req.IfNoneMatch},
	}
	known, err := d.repeated(request.request)
	if err != nil {
		return Written{}, err
	}
	got, err := d.receive(ctx, &req, kind, known != nil) // of a repeat only the digest is wanted
	if err != nil {
		return Written{}, err
	}
	request.digest = got.body.digest
	done, err := d.carryOut(ctx, request, got)
	return Written{Item: done.item, Created: done.created}, err
}

// Delete removes a version, or all of an artifact. Removing is writing.
func (d *Data) Delete(ctx context.Context, w Writer, req DeleteRequest) error {
	if err := d.sys.usable(); err != nil {
		return err
	}
	if err := errors.Join(CheckArtifactName(req.Name), checkRequestID(req.RequestID)); err != nil {
		return err
	}
	digest := sha256.Sum256([]byte("version " + strconv.FormatUint(uint64(req.Version), 10)))
	_, err := d.carryOut(ctx, dataWrite{
		writer: w, method: methodDelete, name: req.Name, request: requestID(w, req.RequestID), digest: digest[:], version: req.Version,
		match: tagMatch{req.IfMatch, req.IfNoneMatch},
	}, received{})
	return err
}

// usable refuses while the orchestrator starts or stops.
func (sys *System) usable() error {
	if !sys.Ready() {
		return messages.Faultf(messages.CodeNotReady, "the orchestrator starts or stops")
	}
	return nil
}

// carryOut marks, and then writes: the order is what keeps a step that has written from being run again. A body that was
// received and that no record names at the end is removed.
func (d *Data) carryOut(ctx context.Context, w dataWrite, got received) (done dataDone, err error) {
	keep := false
	defer func() {
		if !keep && got.body.blob != "" {
			d.free(got.body.blob)
		}
	}()
	// What would be refused anyway is no reason to say of the step that it has written.
	book, err := d.read(w)
	if err != nil {
		return dataDone{}, err
	}
	if done, known, err := book.repeat(w); known {
		return done, err
	}
	if err := book.refuses(w); err != nil {
		return dataDone{}, err
	}
	if err := d.mark(ctx, w.writer); err != nil {
		return dataDone{}, err
	}
	leave, err := d.names.take(ctx, w.name)
	if err != nil {
		return dataDone{}, err
	}
	defer leave()
	for {
		keep = true // whatever happens, until it is known that no record names the body
		done, blob, err := d.attempt(w, got)
		keep = blob != "" && blob == got.body.blob
		if errors.Is(err, errOvertaken) {
			continue
		}
		return done, err
	}
}

// errOvertaken: somebody else has written meanwhile.
var errOvertaken = errors.New("somebody else has written meanwhile")

// attempt is one try to commit a write. blob is the body that the version has, or, where it is not known what became of the
// commit, may have.
func (d *Data) attempt(w dataWrite, got received) (done dataDone, blob string, err error) {
	book, err := d.read(w)
	if err != nil {
		return dataDone{}, "", err
	}
	if done, known, err := book.repeat(w); known {
		return done, "", err
	}
	if got.dropped {
		return dataDone{}, "", messages.Faultf(messages.CodeUnavailable, "the write was forgotten while it was repeated: write again")
	}
	w.at = d.now()
	body, made := got.body, ""
	if open := book.extends(w.writer); w.method == methodAppend && open != nil && book.refuses(w) == nil {
		if body, made, err = d.join(open, got); err != nil {
			return dataDone{}, "", err
		}
	}
	done, decided, err := decideWrite(book, w, body)
	if err != nil {
		return dataDone{}, "", err
	}
	at := address{kindData, escape(w.name)}
	d.sys.hook(pointDecided, at, w)
	err = d.sys.commit(decided)
	if err == nil {
		d.sys.hook(pointCommitted, at, w)
		d.erased.Add(int64(len(decided.erases)))
		d.free(done.frees...)
		return done, body.blob, nil
	}
	if d.sys.distrust(err) {
		return dataDone{}, body.blob, messages.Faultf(messages.CodeUnavailable, "the orchestrator stops after a fault")
	}
	if errors.Is(err, persistence.ErrClosed) {
		return dataDone{}, body.blob, d.fault(err)
	}
	if made != "" {
		d.free(made)
	}
	switch {
	case errors.Is(err, persistence.ErrStaleWriter):
		return dataDone{}, "", errOvertaken
	case errors.Is(err, persistence.ErrConditionFailed):
		if w.writer.Dispatch != "" {
			if _, err := d.lease(w.writer.Dispatch, w.writer.Generation); err != nil {
				return dataDone{}, "", err
			}
		}
		return dataDone{}, "", errOvertaken
	default:
		return dataDone{}, "", d.fault(err)
	}
}

// read reads what a write needs to know of its artifact.
func (d *Data) read(w dataWrite) (artifactBook, error) {
	var b artifactBook
	var err error
	if b.repeated, err = d.repeated(w.request); err != nil || b.repeated != nil {
		return b, err
	}
	head := &messages.ArtifactRecord{}
	if b.version, err = d.sys.read(persistence.KindArtifact, w.name, head); err != nil {
		return b, d.fault(err)
	}
	if b.version == 0 {
		return b, nil
	}
	b.head = head
	if head.GetLatest() > 0 {
		if b.latest, b.latestAt, err = d.version(w.name, head.GetLatest()); err != nil {
			return b, err
		}
	}
	switch {
	case w.method == methodDelete:
		err = d.readGoing(&b, w)
	case w.method == methodAppend && b.extends(w.writer) != nil:
	case tooOld(head.GetLastVersion()) > 0:
		var old *messages.ArtifactVersionRecord
		if old, _, err = d.version(w.name, tooOld(head.GetLastVersion())); old != nil {
			b.going = append(b.going, old)
		}
	}
	return b, err
}

// readGoing reads the versions that a delete removes, and which one is the latest after it.
func (d *Data) readGoing(b *artifactBook, w dataWrite) error {
	err := d.sys.scan(persistence.KindArtifactVersion, false, persistence.ArtifactVersionPrefix(w.name), newBody[messages.ArtifactVersionRecord],
		func(_ persistence.Record, m proto.Message) bool {
			if v := m.(*messages.ArtifactVersionRecord); w.version == 0 || v.GetVersion() == w.version {
				v.Body = nil // only its name is wanted
				b.going = append(b.going, v)
			} else {
				b.next = v.GetVersion()
			}
			return true
		})
	return d.fault(err)
}

// version reads a version; nil where there is none.
func (d *Data) version(name string, version uint32) (*messages.ArtifactVersionRecord, uint64, error) {
	v := &messages.ArtifactVersionRecord{}
	at, err := d.sys.read(persistence.KindArtifactVersion, persistence.ArtifactVersionID(name, version), v)
	if err != nil || at == 0 {
		return nil, 0, d.fault(err)
	}
	return v, at, nil
}

// repeated reads the write that had a request id; nil where there was none.
func (d *Data) repeated(request string) (*messages.DataRequestRecord, error) {
	if request == "" {
		return nil, nil //nolint:nilnil // no id is no error, and nothing known
	}
	r := &messages.DataRequestRecord{}
	at, err := d.sys.read(persistence.KindDataRequest, request, r)
	if err != nil || at == 0 {
		return nil, d.fault(err)
	}
	return r, nil
}

// requestID is the id of the record of a request. Request ids are a dispatch's own, under all its generations: two steps may
// use the same.
func requestID(w Writer, id string) string {
	if id == "" {
		return ""
	}
	digest := sha256.Sum256([]byte(w.Dispatch + "\x00" + id))
	return hex.EncodeToString(digest[:])
}

// contentTypeOf checks a Content-Type, and says what kind of body it is.
func contentTypeOf(s string) (contentType, kind string, err error) {
	if s == "" {
		return "application/octet-stream", artifactFile, nil
	}
	media, _, err := mime.ParseMediaType(s)
	if err != nil || !short(s, maxContentType) {
		return "", "", messages.Faultf(messages.CodeInvalid, "the content type is no media type of at most %d bytes", maxContentType)
	}
	return s, artifactKind(media), nil
}
