package persistence

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
)

// The keys:
//
//	L/<kind>/<id>                 a live record of a kind that ends: run, pending, lease, token, worker, scheduler
//	T/<kind>/<id>                 the same once it has ended, moved in the commit that ends it
//	s/<run>/<ordinal>             a step, under its run, live or ended
//	b/<token>/<generation>/<machine>, d/<digest>, o/<dispatch>   bindings, sources, output records
//	a/<name>, v/<name>\0<number>, w/<digest>   artifacts, their versions, writes by their request ids
//	h/<kind>/<id>\0\1<version>    a former version of a worker or token, 8 bytes big endian
//	e/<stream>\0\1<last>          the events of one commit; the number of its last one, 8 bytes big endian
//	q/<key>                       what stood under key and could not be decoded
//	m/...                         the store itself, see meta.go
//
// Ids stand in the keys as they are, so that the order of keys is the order of ids. Where something follows an id, it
// ends with \0\1, and a zero byte inside it is written \0\xff: the order stays and no id is a prefix of another one's
// keys. A pack of events is named by its last number: the one that holds number n is the first key at or above n, and the
// next number of a stream is read from a key, whatever became of the value.
const (
	prefixLive       = "L/"
	prefixEnded      = "T/"
	prefixStep       = "s/"
	prefixBinding    = "b/"
	prefixSource     = "d/"
	prefixOutput     = "o/"
	prefixArtifact   = "a/"
	prefixVersion    = "v/"
	prefixRequest    = "w/"
	prefixHistory    = "h/"
	prefixEvents     = "e/"
	prefixQuarantine = "q/"
	prefixMeta       = "m/"

	// maxID bounds ids and stream names, so that a key always fits into the engine.
	maxID = 4096
)

// kindInfo is what the keys and the committer have to know of a kind.
type kindInfo struct {
	prefix  string // of its records, live ones where it splits
	ended   string // of its ended records; empty: they stay among the live ones
	history string // of former versions; empty: none are kept
}

func infoOf(kind Kind) kindInfo {
	switch kind {
	case KindRun:
		return kindInfo{prefix: prefixLive + "run/", ended: prefixEnded + "run/"}
	case KindPending:
		return kindInfo{prefix: prefixLive + "pending/", ended: prefixEnded + "pending/"}
	case KindLease:
		return kindInfo{prefix: prefixLive + "lease/", ended: prefixEnded + "lease/"}
	case KindToken:
		return kindInfo{prefix: prefixLive + "token/", ended: prefixEnded + "token/", history: prefixHistory + "token/"}
	case KindWorker:
		return kindInfo{prefix: prefixLive + "worker/", ended: prefixEnded + "worker/", history: prefixHistory + "worker/"}
	case KindScheduler:
		return kindInfo{prefix: prefixLive + "scheduler/", ended: prefixEnded + "scheduler/"}
	case KindStep:
		return kindInfo{prefix: prefixStep}
	case KindBinding:
		return kindInfo{prefix: prefixBinding}
	case KindSource:
		return kindInfo{prefix: prefixSource}
	case KindOutput:
		return kindInfo{prefix: prefixOutput}
	case KindArtifact:
		return kindInfo{prefix: prefixArtifact}
	case KindArtifactVersion:
		return kindInfo{prefix: prefixVersion}
	case KindDataRequest:
		return kindInfo{prefix: prefixRequest}
	default:
		return kindInfo{}
	}
}

// kindCodes is one more than the greatest code of a kind.
const kindCodes = 14

// kindCode is the kind in an envelope. Codes are never given to another kind; 0 is none.
func kindCode(kind Kind) byte {
	switch kind {
	case KindRun:
		return 1
	case KindSource:
		return 2
	case KindStep:
		return 3
	case KindPending:
		return 4
	case KindLease:
		return 5
	case KindOutput:
		return 6
	case KindToken:
		return 7
	case KindBinding:
		return 8
	case KindWorker:
		return 9
	case KindScheduler:
		return 10
	case KindArtifact:
		return 11
	case KindArtifactVersion:
		return 12
	case KindDataRequest:
		return 13
	default:
		return 0
	}
}

func kindOf(code byte) Kind {
	switch code {
	case 1:
		return KindRun
	case 2:
		return KindSource
	case 3:
		return KindStep
	case 4:
		return KindPending
	case 5:
		return KindLease
	case 6:
		return KindOutput
	case 7:
		return KindToken
	case 8:
		return KindBinding
	case 9:
		return KindWorker
	case 10:
		return KindScheduler
	case 11:
		return KindArtifact
	case 12:
		return KindArtifactVersion
	case 13:
		return KindDataRequest
	default:
		return ""
	}
}

// checkRecordKey tells why kind and id cannot name a record.
func checkRecordKey(kind Kind, id string) error {
	switch {
	case infoOf(kind).prefix == "":
		return fmt.Errorf("persistence: unknown kind %q", kind)
	case id == "":
		return fmt.Errorf("persistence: empty id of a %s", kind)
	case len(id) > maxID:
		return fmt.Errorf("%w: an id of %d bytes", ErrTooLarge, len(id))
	}
	return nil
}

// appendKey appends the key of a record to buf.
func appendKey(buf []byte, prefix, id string) []byte {
	buf = append(buf, prefix...)
	return append(buf, id...)
}

// appendNumbered appends a key that ends in a number: of an event pack, or of a former version.
func appendNumbered(buf []byte, prefix, id string, n uint64) []byte {
	buf = append(buf, prefix...)
	if strings.IndexByte(id, 0) < 0 {
		buf = append(buf, id...)
	} else {
		for i := range len(id) {
			buf = append(buf, id[i])
			if id[i] == 0 {
				buf = append(buf, 0xff)
			}
		}
	}
	buf = append(buf, 0, 1)
	return binary.BigEndian.AppendUint64(buf, n)
}

func numberedKey(prefix, id string, n uint64) []byte {
	return appendNumbered(make([]byte, 0, len(prefix)+len(id)+10), prefix, id, n)
}

// splitNumbered is the reverse of appendNumbered.
func splitNumbered(key []byte, prefix string) (id string, n uint64, ok bool) {
	rest, ok := bytes.CutPrefix(key, []byte(prefix))
	if !ok || len(rest) < 10 {
		return "", 0, false
	}
	n = binary.BigEndian.Uint64(rest[len(rest)-8:])
	rest = rest[:len(rest)-8]
	if rest[len(rest)-2] != 0 || rest[len(rest)-1] != 1 {
		return "", 0, false
	}
	rest = rest[:len(rest)-2]
	if bytes.IndexByte(rest, 0) < 0 {
		return string(rest), n, true
	}
	plain := make([]byte, 0, len(rest))
	for i := 0; i < len(rest); i++ {
		plain = append(plain, rest[i])
		if rest[i] == 0 {
			if i+1 == len(rest) || rest[i+1] != 0xff {
				return "", 0, false
			}
			i++
		}
	}
	return string(plain), n, true
}

// number is the number at the end of a numbered key.
func number(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// prefixEnd is the first key above all that begin with prefix; nil: there is none.
func prefixEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
