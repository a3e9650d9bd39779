package persistence

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

// The envelope of a record, integers little endian, lengths and numbers as unsigned varints where not said otherwise:
//
//	crc32c of all that follows   4 bytes
//	format                       1 byte
//	flags                        1 byte, bit 0: ended
//	kind                         1 byte, see kindCode
//	version, epoch
//	time                         8 bytes, nanoseconds since 1970
//	id, state                    length and bytes
//	body                         the rest
//
// Kind and id repeat the key, so that a value that stands under another one's key is found out.
const (
	recordFormat = 1
	packFormat   = 2

	flagEnded = 1

	checksumSize = 4
	// recordOverhead bounds what the envelope adds to id, state and body.
	recordOverhead = checksumSize + 3 + 2*binary.MaxVarintLen64 + 8 + 2*binary.MaxVarintLen32
	// packOverhead and eventOverhead bound what a pack adds to the bodies of its events.
	packOverhead  = checksumSize + 1 + binary.MaxVarintLen32
	eventOverhead = binary.MaxVarintLen32
)

// DecodeError says that stored bytes are not a record or a pack of events.
type DecodeError struct {
	What string
}

func (e *DecodeError) Error() string { return "persistence: stored value does not decode: " + e.What }

// castagnoli is hardware-assisted where it matters. MakeTable returns the same table each time, without work.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// appendRecord appends the record in its envelope. Its kind is a known one.
func appendRecord(buf []byte, r *Record) []byte {
	start := len(buf)
	var flags byte
	if r.Ended {
		flags = flagEnded
	}
	buf = append(buf, 0, 0, 0, 0, recordFormat, flags, kindCode(r.Kind))
	buf = binary.AppendUvarint(buf, r.Version)
	buf = binary.AppendUvarint(buf, r.Epoch)
	buf = binary.LittleEndian.AppendUint64(buf, uint64(r.Time.UnixNano()))
	buf = appendString(buf, r.ID)
	buf = appendString(buf, r.State)
	buf = append(buf, r.Body...)
	seal(buf[start:])
	return buf
}

func appendString(buf []byte, s string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s)))
	return append(buf, s...)
}

// seal writes the checksum of a finished value into its first bytes.
func seal(value []byte) { binary.LittleEndian.PutUint32(value, checksum(value[checksumSize:])) }

// DecodeRecord reads a record from its envelope. The body is a part of value. The error is a [*DecodeError].
func DecodeRecord(value []byte) (Record, error) {
	h, err := decodeHeader(value)
	if err != nil {
		return Record{}, err
	}
	return Record{
		Kind: h.kind, ID: string(h.id), Version: h.version, Epoch: h.epoch, State: string(h.state), Ended: h.ended,
		Time: timeOf(h.time), Body: h.body,
	}, nil
}

func timeOf(nanos int64) time.Time { return time.Unix(0, nanos).UTC() }

// header is a decoded envelope whose parts still lie in the value.
type header struct {
	kind    Kind
	ended   bool
	version uint64
	epoch   uint64
	time    int64
	id      []byte
	state   []byte
	body    []byte
}

func decodeHeader(value []byte) (header, error) {
	d, err := unseal(value, recordFormat)
	if err != nil {
		return header{}, err
	}
	flags := d.byte()
	kind := kindOf(d.byte())
	h := header{kind: kind, ended: flags&flagEnded != 0}
	h.version = d.uvarint()
	h.epoch = d.uvarint()
	h.time = int64(d.uint64())
	h.id = d.bytes()
	h.state = d.bytes()
	h.body = d.rest
	switch {
	case d.short:
		return header{}, &DecodeError{What: "too short"}
	case kind == "":
		return header{}, &DecodeError{What: "unknown kind"}
	case flags&^flagEnded != 0:
		return header{}, &DecodeError{What: "unknown flags"}
	case h.version == 0:
		return header{}, &DecodeError{What: "version 0"}
	}
	return h, nil
}

// unseal checks the checksum and the format of a value and returns a reader of what follows them.
func unseal(value []byte, format byte) (decoder, error) {
	if len(value) < checksumSize+1 {
		return decoder{}, &DecodeError{What: "too short"}
	}
	if binary.LittleEndian.Uint32(value) != checksum(value[checksumSize:]) {
		return decoder{}, &DecodeError{What: "checksum mismatch"}
	}
	if found := value[checksumSize]; found != format {
		return decoder{}, &DecodeError{What: fmt.Sprintf("unknown format %d", found)}
	}
	return decoder{rest: value[checksumSize+1:]}, nil
}

// decoder reads fields one by one; short tells that one of them was not there.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.short = true
		d.rest = nil
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.short = true
		d.rest = nil
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) bytes() []byte { return d.take(d.uvarint()) }

// A pack holds the events that one commit appended to one stream: checksum, format, count, then each event as length and
// bytes. The number of the last one stands in its key.

func beginPack(buf []byte, count int) []byte {
	buf = append(buf, 0, 0, 0, 0, packFormat)
	return binary.AppendUvarint(buf, uint64(count))
}

// decodePack calls fn for each event of a pack, numbered up to last. A pack of no events marks where one was set aside.
func decodePack(value []byte, last uint64, fn func(Event)) error {
	d, err := unseal(value, packFormat)
	if err != nil {
		return err
	}
	count := d.uvarint()
	if count > last || count > uint64(len(value)) {
		return &DecodeError{What: "impossible count of events"}
	}
	for seq := last - count + 1; seq <= last; seq++ {
		body := d.bytes()
		if d.short {
			return &DecodeError{What: "too short"}
		}
		fn(Event{Seq: seq, Body: body})
	}
	if len(d.rest) > 0 {
		return &DecodeError{What: "bytes after the last event"}
	}
	return nil
}
