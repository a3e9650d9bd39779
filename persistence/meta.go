package persistence

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// FormatVersion is the format of the store that this program writes. It grows with each change of keys or envelopes that
// an older program would read wrongly.
const FormatVersion = 1

const (
	keyStore = prefixMeta + "store"
	keyHead  = prefixMeta + "head"

	metaFormat = 3
	// maxEpoch leaves Sequence 40 bits for each boot.
	maxEpoch = 1<<24 - 1
)

// Meta is what a store says of itself. A store in which nothing was ever written has the zero Meta.
type Meta struct {
	Format     int
	StoreID    string
	Generation uint64 // grows when the store is restored from a backup
	Epoch      uint64 // of its last boot
	Head       Head
}

// ReadMeta reads it from an engine. The error is a [*DecodeError] where it is there and damaged.
func ReadMeta(engine Engine) (m Meta, err error) {
	err = engine.View(func(r Reader) (err error) {
		m, err = readMeta(r)
		return err
	})
	return m, err
}

func readMeta(r Reader) (Meta, error) {
	m, err := decodeMeta(r)
	if err != nil {
		return Meta{}, fmt.Errorf("read what the store says of itself: %w", err)
	}
	return m, nil
}

func decodeMeta(r Reader) (m Meta, err error) {
	value, err := r.Get([]byte(keyStore))
	switch {
	case errors.Is(err, ErrNotFound):
		return m, nil
	case err != nil:
		return m, err
	}
	d, err := unseal(value, metaFormat)
	if err != nil {
		return m, err
	}
	m.Format = int(d.uvarint())
	m.Epoch = d.uvarint()
	m.Generation = d.uvarint()
	m.StoreID = string(d.bytes())
	if d.short {
		return m, &DecodeError{What: "too short"}
	}
	if value, err = r.Get([]byte(keyHead)); err != nil {
		return m, fmt.Errorf("head: %w", err)
	}
	if d, err = unseal(value, metaFormat); err != nil {
		return m, err
	}
	m.Head = Head{Number: d.uvarint(), Hash: d.uint64()}
	if d.short {
		return m, &DecodeError{What: "too short"}
	}
	return m, nil
}

func encodeStore(m Meta) []byte {
	buf := []byte{0, 0, 0, 0, metaFormat}
	buf = binary.AppendUvarint(buf, uint64(m.Format))
	buf = binary.AppendUvarint(buf, m.Epoch)
	buf = binary.AppendUvarint(buf, m.Generation)
	buf = appendString(buf, m.StoreID)
	seal(buf)
	return buf
}

func encodeHead(h Head) []byte {
	buf := make([]byte, 0, checksumSize+1+binary.MaxVarintLen64+8)
	buf = append(buf, 0, 0, 0, 0, metaFormat)
	buf = binary.AppendUvarint(buf, h.Number)
	buf = binary.LittleEndian.AppendUint64(buf, h.Hash)
	seal(buf)
	return buf
}

// finish closes the batch with the head that follows prev.
func (b *Batch) finish(prev Head) {
	var link [8 + 8 + 4]byte
	binary.LittleEndian.PutUint64(link[0:], prev.Number)
	binary.LittleEndian.PutUint64(link[8:], prev.Hash)
	binary.LittleEndian.PutUint32(link[16:], b.sum)
	sum := sha256.Sum256(link[:])
	b.Head = Head{Number: prev.Number + 1, Hash: binary.LittleEndian.Uint64(sum[:])}
	b.Put([]byte(keyHead), encodeHead(b.Head))
}
