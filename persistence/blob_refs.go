package persistence

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/swampd/swampd/messages"
)

// BlobRef is what a record says of a body that it names.
type BlobRef struct {
	Key    string
	Owner  string // the record, for a person
	Size   uint64 // the file may have more: what was appended to it, and never named
	Digest []byte // SHA-256 of that many bytes
}

// blobRef returns the body that a record names, if it names one.
func blobRef(kind Kind, body []byte) (ref BlobRef, named bool, err error) {
	switch kind {
	case KindArtifactVersion:
		var v messages.ArtifactVersionRecord
		if err := proto.Unmarshal(body, &v); err != nil {
			return BlobRef{}, false, err
		}
		return refOfVersion(&v), v.GetBlob() != "", nil
	case KindLease:
		var l messages.LeaseRecord
		if err := proto.Unmarshal(body, &l); err != nil {
			return BlobRef{}, false, err
		}
		return refOfOutputs(l.GetOutcome().GetOutputsBody(), "dispatch", l.GetDispatchId()), l.GetOutcome().GetOutputsBody() != nil, nil
	case KindStep:
		var s messages.StepRecord
		if err := proto.Unmarshal(body, &s); err != nil {
			return BlobRef{}, false, err
		}
		return refOfOutputs(s.GetOutputsBody(), "step", StepID(s.GetRunId(), s.GetOrdinal())), s.GetOutputsBody() != nil, nil
	default:
		return BlobRef{}, false, nil
	}
}

func refOfOutputs(r *messages.BodyRef, what, id string) BlobRef {
	if r == nil {
		return BlobRef{}
	}
	return BlobRef{Key: r.GetKey(), Owner: fmt.Sprintf("the outputs of %s %q", what, id), Size: r.GetSize(), Digest: r.GetDigest()}
}

func refOfVersion(v *messages.ArtifactVersionRecord) BlobRef {
	return BlobRef{Key: v.GetBlob(), Owner: describeVersion(v), Size: v.GetSize(), Digest: v.GetDigest()}
}

func describeVersion(v *messages.ArtifactVersionRecord) string {
	return fmt.Sprintf("version %d of artifact %q", v.GetVersion(), v.GetName())
}

// blobKinds are the kinds whose records may name a body.
func blobKinds() []Kind { return []Kind{KindArtifactVersion, KindLease, KindStep} }

// blobRefAt is blobRef for a key and a value of the engine.
func blobRefAt(key, value []byte) (ref BlobRef, named bool, err error) {
	h, err := decodeRecordAt(key, value)
	if err != nil {
		return BlobRef{}, false, err
	}
	return blobRef(h.kind, h.body)
}

// mayNameBlob tells whether a record that may name a body stands under key.
func mayNameBlob(key []byte) bool {
	for _, kind := range blobKinds() {
		info := infoOf(kind)
		if bytes.HasPrefix(key, []byte(info.prefix)) || (info.ended != "" && bytes.HasPrefix(key, []byte(info.ended))) {
			return true
		}
	}
	return false
}

// blobKeysIn finds what looks like keys of bodies in a value that does not decode: its body is worth keeping as much as it.
func blobKeysIn(value []byte, fn func(key string)) {
	for i := 0; i+BlobKeySize <= len(value); i++ {
		if key := string(value[i : i+BlobKeySize]); IsBlobKey(key) {
			fn(key)
		}
	}
}
