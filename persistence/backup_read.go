package persistence

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
)

// BackupError says that a file is no backup, or not a whole one.
type BackupError struct {
	What string
}

func (e *BackupError) Error() string { return e.What }

func badBackup(format string, args ...any) error {
	return &BackupError{What: fmt.Sprintf(format, args...)}
}

// BackupEntry is a key of the store, a chunk of output, or a piece of a body.
type BackupEntry struct {
	Key, Value []byte
	Dispatch   string // of the chunk; else empty
	Chunk      Chunk
	Body       string // the key of the body; else empty
	At         uint64 // where the piece begins; at 0 begins the body
	Piece      []byte
}

// ReadBackup reads a backup to its end and calls fn for each entry, whose bytes are valid during the call only. All of it
// has been checked only when ReadBackup returns without an error: until then fn must not do what cannot be undone. The
// error is a [*BackupError] where the backup is at fault, and else fn's or the reader's. A nil fn only checks.
func ReadBackup(r io.Reader, fn func(BackupInfo, BackupEntry) error) (BackupInfo, error) {
	b := &backupReader{in: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	if err := b.magic(); err != nil {
		return BackupInfo{}, err
	}
	kind, payload, err := b.entry()
	if err != nil {
		return BackupInfo{}, err
	}
	if kind != entryHeader {
		return BackupInfo{}, b.damaged("it does not begin with its description")
	}
	if err := b.header(payload); err != nil {
		return BackupInfo{}, err
	}
	for {
		sum := b.sum.Sum(nil)
		kind, payload, err := b.entry()
		if err != nil {
			return BackupInfo{}, err
		}
		var e BackupEntry
		switch kind {
		case entryRecord:
			b.info.Records++
			e, err = b.record(payload)
		case entryOutput:
			b.info.Chunks++
			e, err = b.chunk(payload)
		case entryBody:
			e, err = b.piece(payload)
		case entryEnd:
			return b.end(payload, sum)
		default:
			err = b.damaged("an entry is of no known kind")
		}
		if err == nil && fn != nil {
			err = fn(b.info, e)
		}
		if err != nil {
			return BackupInfo{}, err
		}
	}
}

type backupReader struct {
	in   *bufio.Reader
	sum  hash.Hash
	buf  []byte
	info BackupInfo

	format uint64 // of the backup
	body   string // whose piece came last
	at     uint64 // where it ended
}

func (b *backupReader) damaged(what string) error {
	return badBackup("it is damaged near byte %d: %s", b.info.Bytes, what)
}

// read fills p.
func (b *backupReader) read(p []byte) error {
	n, err := io.ReadFull(b.in, p)
	b.sum.Write(p[:n])
	b.info.Bytes += uint64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return badBackup("it is cut off after %d bytes", b.info.Bytes)
	}
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	return nil
}

func (b *backupReader) magic() error {
	magic := make([]byte, len(backupMagic))
	err := b.read(magic)
	if !strings.HasPrefix(backupMagic, string(magic[:b.info.Bytes])) {
		return badBackup("it is no backup of swampd")
	}
	return err
}

func (b *backupReader) entry() (kind byte, payload []byte, err error) {
	var prefix [entryPrefix]byte
	if err := b.read(prefix[:]); err != nil {
		return 0, nil, err
	}
	size := int(binary.LittleEndian.Uint32(prefix[:]))
	if size > maxEntry {
		return 0, nil, b.damaged("an entry is impossibly large")
	}
	if cap(b.buf) < size+1 {
		b.buf = make([]byte, size+1)
	}
	entry := b.buf[:size+1]
	entry[0] = prefix[entryPrefix-1]
	if err := b.read(entry[1:]); err != nil {
		return 0, nil, err
	}
	if checksum(entry) != binary.LittleEndian.Uint32(prefix[4:]) {
		return 0, nil, b.damaged("checksum mismatch")
	}
	return entry[0], entry[1:], nil
}

func (b *backupReader) header(payload []byte) error {
	d := decoder{rest: payload}
	if b.format = d.uvarint(); !d.short && (b.format == 0 || b.format > backupFormat) {
		return badBackup("it has backup format %d, this program knows up to %d: use the newer swampd", b.format, backupFormat)
	}
	b.info.Format = int(d.uvarint())
	b.info.Generation = d.uvarint()
	b.info.Epoch = d.uvarint()
	b.info.Head = Head{Number: d.uvarint(), Hash: d.uint64()}
	b.info.Time = timeOf(int64(d.uint64()))
	b.info.StoreID = string(d.rest)
	switch {
	case d.short || b.info.StoreID == "":
		return b.damaged("its description is too short")
	case b.info.Format > FormatVersion:
		return badBackup("it is of store format %d, this program knows up to %d: use the newer swampd", b.info.Format, FormatVersion)
	}
	return nil
}

func (b *backupReader) record(payload []byte) (e BackupEntry, err error) {
	d := decoder{rest: payload}
	e.Key = d.bytes()
	e.Value = d.rest
	if d.short || len(e.Key) == 0 {
		return e, b.damaged("a record is too short")
	}
	return e, nil
}

func (b *backupReader) chunk(payload []byte) (e BackupEntry, err error) {
	d := decoder{rest: payload}
	e.Chunk.Offset = d.uvarint()
	e.Chunk.Time = timeOf(int64(d.uint64()))
	e.Dispatch = string(d.bytes())
	e.Chunk.Stream = string(d.bytes())
	e.Chunk.Data = d.rest
	if d.short || e.Dispatch == "" {
		return e, b.damaged("a chunk of output is too short")
	}
	return e, nil
}

func (b *backupReader) piece(payload []byte) (e BackupEntry, err error) {
	d := decoder{rest: payload}
	e.At = d.uvarint()
	e.Body = string(d.bytes())
	e.Piece = d.rest
	if e.At == 0 {
		b.body, b.at = e.Body, 0
		b.info.Bodies++
	}
	switch {
	case d.short || !IsBlobKey(e.Body):
		return e, b.damaged("a piece of a body is too short")
	case e.Body != b.body || e.At != b.at || b.format < 2:
		return e, b.damaged("a piece of a body is out of its place")
	}
	b.at += uint64(len(e.Piece))
	b.info.Pieces++
	b.info.InBodies += uint64(len(e.Piece))
	return e, nil
}

// end checks the last entry; sum is that of all before it.
func (b *backupReader) end(payload, sum []byte) (BackupInfo, error) {
	d := decoder{rest: payload}
	records, chunks, pieces := d.uvarint(), d.uvarint(), uint64(0)
	if b.format >= 2 {
		pieces, b.info.Absent = d.uvarint(), d.uvarint()
	}
	switch {
	case d.short || records != b.info.Records || chunks != b.info.Chunks || pieces != b.info.Pieces:
		return BackupInfo{}, b.damaged("entries are missing")
	case string(d.rest) != string(sum):
		return BackupInfo{}, b.damaged("its digest does not match")
	}
	b.info.Digest = hex.EncodeToString(b.sum.Sum(nil))
	switch _, err := b.in.ReadByte(); {
	case err == nil:
		return BackupInfo{}, b.damaged("something follows its end")
	case !errors.Is(err, io.EOF):
		return BackupInfo{}, fmt.Errorf("read the backup: %w", err)
	}
	return b.info, nil
}
