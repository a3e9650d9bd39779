package persistence

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/swampd/swampd/messages"
)

// A backup is one stream, integers little endian, numbers where not said otherwise unsigned varints:
//
//	"swampd backup\n"
//	entries, each of them:
//	  length of the payload   4 bytes
//	  crc32c of what follows  4 bytes
//	  kind                    1 byte
//	  payload
//
//	'H', the first entry: format of the backup, format of the store, generation, epoch, number of the head,
//	     hash of the head (8 bytes), time (8 bytes, nanoseconds since 1970), store id (the rest)
//	'R'  one key of the store: length of the key, key, value (the rest), in key order
//	'O'  one chunk of output: offset, time (8 bytes), length and bytes of dispatch and of stream, data (the rest)
//	'B'  one piece of a body: where it begins, length and bytes of the body's key, data (the rest); the first piece of a
//	     body begins at 0, and each one where the one before ended
//	'E', the last entry: number of 'R', of 'O' and of 'B' entries, number of bodies that records name and that were not
//	     there as a whole, SHA-256 of all bytes before this entry
//
// Nothing follows the last entry. Format 1 has no 'B', and neither of the last two numbers. The values are those of the engine, with checksums of their own.
const (
	backupMagic  = "swampd backup\n"
	backupFormat = 2

	entryHeader = 'H'
	entryRecord = 'R'
	entryOutput = 'O'
	entryBody   = 'B'
	entryEnd    = 'E'

	entryPrefix = 4 + 4 + 1
	// maxEntry is above whatever a commit or a chunk can hold, so that a damaged length is found out.
	maxEntry = 16 << 20
	// backupPage is how much output of one dispatch, or of one body, is read at a time.
	backupPage = 256 << 10
)

// BackupInfo describes a backup.
type BackupInfo struct {
	// What the store was, when the backup was taken. Head is the last commit that it holds.
	StoreID    string
	Format     int
	Generation uint64
	Epoch      uint64
	Head       Head
	Time       time.Time

	Records  uint64 // keys of the store, its own included
	Chunks   uint64 // of output
	Bodies   uint64
	Pieces   uint64 // of bodies
	InBodies uint64 // bytes of Bytes that are in bodies
	// Absent is how many bodies records name that were not there as a whole: the backup has what there was.
	Absent uint64
	Bytes  uint64 // of the whole stream
	Digest string // SHA-256 of the whole stream, in hexadecimal
}

// Backup implements [Journal]. The records are those of one moment. The logs of output are read after them, so that they
// hold at least what the records say that they do, and so are the bodies that these records name.
func (s *Store) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	if err := s.enter(); err != nil {
		return BackupInfo{}, err
	}
	defer s.leave()
	s.backups.begin()
	defer s.backups.end()
	out := newBackupWriter(w)
	bodies, err := s.backupRecords(ctx, out)
	if err != nil {
		return BackupInfo{}, fmt.Errorf("back up the records: %w", err)
	}
	logs, err := s.output.List()
	if err != nil {
		return BackupInfo{}, fmt.Errorf("back up the output: %w", err)
	}
	for _, dispatch := range logs {
		if err := s.backupOutput(ctx, out, dispatch); err != nil {
			return BackupInfo{}, fmt.Errorf("back up the output of %q: %w", dispatch, err)
		}
	}
	for _, ref := range bodies {
		if err := s.backupBody(ctx, out, ref); err != nil {
			return BackupInfo{}, fmt.Errorf("back up the body of %s: %w", ref.Owner, err)
		}
	}
	if err := out.end(); err != nil {
		return BackupInfo{}, fmt.Errorf("write the end of the backup: %w", err)
	}
	return out.info, nil
}

// backupRecords returns the bodies that the records name.
func (s *Store) backupRecords(ctx context.Context, out *backupWriter) (bodies []BlobRef, err error) {
	seen := map[string]struct{}{} // a step and its lease name the same one
	err = s.engine.View(func(r Reader) error {
		meta, err := readMeta(r)
		if err != nil {
			return err
		}
		out.header(meta, s.committer.now())
		err = r.Scan(nil, nil, false, func(key, value []byte) bool {
			out.record(key, value)
			if mayNameBlob(key) {
				if ref, named, err := blobRefAt(key, value); err == nil && named { // else it is set aside by the one who reads it
					ref.Digest = nil
					if _, again := seen[ref.Key]; !again {
						seen[ref.Key] = struct{}{}
						bodies = append(bodies, ref)
					}
				}
			}
			if ctx.Err() != nil {
				out.fail(context.Cause(ctx))
			}
			return out.err == nil
		})
		if err != nil {
			return err
		}
		return out.err
	})
	return bodies, err
}

// backupBody writes as much of a body as its record names. One that is damaged does not keep the rest from being backed up.
func (s *Store) backupBody(ctx context.Context, out *backupWriter, ref BlobRef) error {
	absent := func(err error) error {
		out.info.Absent++
		s.quarantine.logger.Warn("a body is not whole in the backup", messages.KeyErr, fmt.Errorf("%s: body %s: %w", ref.Owner, ref.Key, err))
		return nil
	}
	if !IsBlobKey(ref.Key) {
		return absent(fmt.Errorf("%q: %w", ref.Key, ErrNotFound))
	}
	r, err := s.blobs.Open(ref.Key)
	if err != nil {
		return absent(err)
	}
	defer func() { _ = r.Close() }() // it was only read
	page := make([]byte, min(backupPage, max(ref.Size, 1)))
	for at := uint64(0); at < ref.Size || at == 0; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		n, err := r.ReadAt(page[:min(uint64(len(page)), ref.Size-at)], int64(at))
		if n == 0 && err != nil && ref.Size > 0 {
			return absent(err)
		}
		out.piece(ref.Key, at, page[:n])
		if out.err != nil || ref.Size == 0 {
			return out.err
		}
		at += uint64(n)
	}
	return nil
}

func (s *Store) backupOutput(ctx context.Context, out *backupWriter, dispatch string) error {
	for from := uint64(0); ; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		chunks, err := s.output.Read(dispatch, from, backupPage)
		if err != nil {
			return err
		}
		for i := range chunks {
			out.chunk(dispatch, &chunks[i])
			from = chunks[i].Offset + uint64(len(chunks[i].Data))
		}
		if len(chunks) == 0 || out.err != nil {
			return out.err
		}
	}
}

// backupWriter writes the entries of a backup. The first error stays.
type backupWriter struct {
	out  *bufio.Writer
	sum  hash.Hash
	buf  []byte
	info BackupInfo
	err  error
}

func newBackupWriter(w io.Writer) *backupWriter {
	b := &backupWriter{out: bufio.NewWriterSize(w, 64<<10), sum: sha256.New()}
	b.write([]byte(backupMagic))
	return b
}

func (b *backupWriter) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *backupWriter) write(p []byte) {
	if b.err != nil {
		return
	}
	_, b.err = b.out.Write(p)
	b.sum.Write(p)
	b.info.Bytes += uint64(len(p))
}

// entry writes an entry of the payload that is in buf behind its prefix.
func (b *backupWriter) entry(kind byte) {
	b.buf[entryPrefix-1] = kind
	binary.LittleEndian.PutUint32(b.buf, uint32(len(b.buf)-entryPrefix))
	binary.LittleEndian.PutUint32(b.buf[4:], checksum(b.buf[entryPrefix-1:]))
	b.write(b.buf)
}

func (b *backupWriter) begin() { b.buf = append(b.buf[:0], make([]byte, entryPrefix)...) }

func (b *backupWriter) header(m Meta, now time.Time) {
	b.info.StoreID, b.info.Format, b.info.Generation, b.info.Epoch, b.info.Head = m.StoreID, m.Format, m.Generation, m.Epoch, m.Head
	b.info.Time = timeOf(now.UnixNano())
	b.begin()
	for _, n := range [...]uint64{backupFormat, uint64(m.Format), m.Generation, m.Epoch, m.Head.Number} {
		b.buf = binary.AppendUvarint(b.buf, n)
	}
	b.buf = binary.LittleEndian.AppendUint64(b.buf, m.Head.Hash)
	b.buf = binary.LittleEndian.AppendUint64(b.buf, uint64(now.UnixNano()))
	b.buf = append(b.buf, m.StoreID...)
	b.entry(entryHeader)
}

func (b *backupWriter) record(key, value []byte) {
	b.info.Records++
	b.begin()
	b.buf = binary.AppendUvarint(b.buf, uint64(len(key)))
	b.buf = append(b.buf, key...)
	b.buf = append(b.buf, value...)
	b.entry(entryRecord)
}

func (b *backupWriter) chunk(dispatch string, c *Chunk) {
	b.info.Chunks++
	b.begin()
	b.buf = binary.AppendUvarint(b.buf, c.Offset)
	b.buf = binary.LittleEndian.AppendUint64(b.buf, uint64(c.Time.UnixNano()))
	b.buf = appendString(b.buf, dispatch)
	b.buf = appendString(b.buf, c.Stream)
	b.buf = append(b.buf, c.Data...)
	b.entry(entryOutput)
}

func (b *backupWriter) piece(key string, at uint64, data []byte) {
	if b.info.Pieces++; at == 0 {
		b.info.Bodies++
	}
	b.info.InBodies += uint64(len(data))
	b.begin()
	b.buf = binary.AppendUvarint(b.buf, at)
	b.buf = appendString(b.buf, key)
	b.buf = append(b.buf, data...)
	b.entry(entryBody)
}

func (b *backupWriter) end() error {
	b.begin()
	for _, n := range [...]uint64{b.info.Records, b.info.Chunks, b.info.Pieces, b.info.Absent} {
		b.buf = binary.AppendUvarint(b.buf, n)
	}
	b.buf = b.sum.Sum(b.buf)
	b.entry(entryEnd)
	if b.err == nil {
		b.err = b.out.Flush()
	}
	b.info.Digest = hex.EncodeToString(b.sum.Sum(nil))
	return b.err
}
