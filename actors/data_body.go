package actors

import (
	"context"
	"crypto/sha256"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/swampd/swampd/messages"
	"github.com/swampd/swampd/persistence"
)

// bodyPiece is how much of a body is in memory at once.
const bodyPiece = 256 << 10

// bodyPieces are buffers of that size.
var bodyPieces = sync.Pool{New: func() any { b := make([]byte, bodyPiece); return &b }} //nolint:gochecknoglobals // a pool has no state that anybody sees

// received is a body that has come whole, and has been found right.
type received struct {
	body dataBody
	// dropped: it was only looked at.
	dropped bool
}

// receive takes a body in: into memory, or above inlineBody into a file of its own, which is durable then. verify is asked
// at its end, with its SHA-256. A body that breaks off, or that is not what it should be, leaves nothing. With drop it is only
// looked at.
func (d *Data) receive(ctx context.Context, req *WriteRequest, kind string, drop bool) (_ received, err error) {
	got, digest := received{dropped: drop}, newDigester()
	defer digest.end()
	var check *jsonCheck
	if kind == artifactJSON {
		check = newJSONCheck()
	}
	var blob persistence.BlobWriter
	defer func() {
		if err != nil && blob != nil {
			d.discard(blob)
		}
	}()
	for last := false; !last; {
		part, readErr := digest.next(req.Body)
		if ctx.Err() != nil {
			return received{}, context.Cause(ctx)
		}
		if last = errors.Is(readErr, io.EOF); readErr != nil && !last {
			return received{}, readErr
		}
		digest.add(part, last)
		got.body.size += uint64(len(part))
		if check != nil {
			if err := check.write(part); err != nil {
				return received{}, err
			}
		}
		switch {
		case drop || len(part) == 0:
		case blob == nil && got.body.size <= inlineBody: // only the first piece can be so small
			got.body.inline = slices.Clone(part)
		default:
			if blob == nil {
				if blob, err = d.sys.journal.NewBlob(); err != nil {
					return received{}, d.fault(err)
				}
			}
			if _, err = blob.Write(part); err != nil {
				return received{}, d.fault(err)
			}
		}
	}
	if check != nil {
		if err := check.end(); err != nil {
			return received{}, err
		}
	}
	sum := digest.end()
	got.body.digest = sum.Sum(nil)
	if req.Verify != nil {
		if err := req.Verify([sha256.Size]byte(got.body.digest)); err != nil {
			return received{}, err
		}
	}
	if blob != nil {
		if got.body.blob, err = blob.Commit(); err != nil {
			return received{}, d.fault(err)
		}
	}
	got.body.state, err = hashState(sum)
	return got, err
}

// digester reads a body piece by piece and makes its digest. Of a body of more than one piece the digest is made beside the
// rest: while one piece is written, and the next one read.
type digester struct {
	sum    hash.Hash
	pieces [2]*[]byte
	turn   int
	parts  chan []byte   // to the goroutine; nil: there is none
	taken  chan struct{} // a value for each of them that is in the digest
	busy   bool          // one is on its way
}

func newDigester() *digester { return &digester{sum: sha256.New()} }

// next reads the next piece, which is whole unless the body ends. It stands until the one after the next is read.
func (h *digester) next(r io.Reader) ([]byte, error) {
	h.turn = 1 - h.turn
	if h.pieces[h.turn] == nil {
		h.pieces[h.turn] = bodyPieces.Get().(*[]byte)
	}
	n, err := fill(r, *h.pieces[h.turn])
	return (*h.pieces[h.turn])[:n], err
}

// add adds the piece that was read.
func (h *digester) add(part []byte, last bool) {
	if last && h.parts == nil {
		_, _ = h.sum.Write(part) // a hash takes everything
		return
	}
	if h.parts == nil {
		h.parts, h.taken = make(chan []byte), make(chan struct{}, 1)
		go h.run(h.parts)
	}
	h.wait()
	h.parts <- part
	h.busy = true
}

// run ends when parts is closed, which end does and waits for.
func (h *digester) run(parts <-chan []byte) {
	for part := range parts {
		_, _ = h.sum.Write(part) // a hash takes everything
		h.taken <- struct{}{}
	}
	close(h.taken)
}

func (h *digester) wait() {
	if h.busy {
		<-h.taken
		h.busy = false
	}
}

// end is the digest of all that was added. Nothing is read after it.
func (h *digester) end() hash.Hash {
	h.wait()
	if h.parts != nil {
		close(h.parts)
		<-h.taken // closed
		h.parts = nil
	}
	for i, piece := range h.pieces {
		if piece != nil {
			bodyPieces.Put(piece)
			h.pieces[i] = nil
		}
	}
	return h.sum
}

// fill reads until the piece is full or the body has ended, which is io.EOF, also together with bytes.
func fill(r io.Reader, piece []byte) (int, error) {
	n := 0
	for n < len(piece) {
		m, err := r.Read(piece[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// discard gives up a body that is being written.
func (d *Data) discard(blob persistence.BlobWriter) {
	if err := blob.Discard(); err != nil {
		d.sys.log.Warn("half a body of an artifact not removed", slog.Any(messages.KeyErr, err))
	}
}

// hashState is what a digest goes on from.
func hashState(h hash.Hash) ([]byte, error) {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return nil, errors.New("the state of a digest cannot be kept")
	}
	state, err := m.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("keep the state of a digest: %w", err)
	}
	return state, nil
}

// hashFrom is the digest that goes on from a state.
func hashFrom(state []byte) (hash.Hash, error) {
	h := sha256.New()
	u, ok := h.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, errors.New("the state of a digest cannot be taken up")
	}
	if err := u.UnmarshalBinary(state); err != nil {
		return nil, fmt.Errorf("take up the state of a digest: %w", err)
	}
	return h, nil
}

// join is the body of an open version after what was sent. The bytes stand where the version's record will name them, and are
// durable; until that is committed they are nobody's. made is a body that was begun for it.
func (d *Data) join(open *messages.ArtifactVersionRecord, got received) (body dataBody, made string, err error) {
	h, err := hashFrom(open.GetHashState())
	if err != nil {
		return dataBody{}, "", err
	}
	body.size = open.GetSize() + got.body.size
	body.blob = open.GetBlob()
	switch {
	case got.body.size == 0:
		body.inline = open.GetBody()
	case body.size <= inlineBody:
		body.inline = slices.Concat(open.GetBody(), got.body.inline)
		_, _ = h.Write(got.body.inline) // a hash takes everything
	default:
		if body.blob, made, err = d.extend(open, got, h); err != nil {
			return dataBody{}, made, err
		}
	}
	body.digest = h.Sum(nil)
	body.state, err = hashState(h)
	return body, made, err
}

// extend writes what was sent behind the bytes that the version has.
func (d *Data) extend(open *messages.ArtifactVersionRecord, got received, h hash.Hash) (key, made string, err error) {
	var to persistence.BlobWriter
	if open.GetBlob() == "" {
		if to, err = d.sys.journal.NewBlob(); err == nil {
			_, err = to.Write(open.GetBody())
		}
	} else {
		to, err = d.sys.journal.ExtendBlob(open.GetBlob(), int64(open.GetSize()))
	}
	if err == nil {
		err = d.copyTo(io.MultiWriter(to, h), got.body)
	}
	if err == nil {
		key, err = to.Commit()
	}
	if err != nil {
		if to != nil {
			d.discard(to)
		}
		return "", "", d.fault(err)
	}
	if open.GetBlob() == "" {
		made = key
	}
	return key, made, nil
}

// copyTo writes a body that has been received.
func (d *Data) copyTo(w io.Writer, b dataBody) error {
	if b.blob == "" {
		_, err := w.Write(b.inline)
		return err
	}
	r, err := d.sys.journal.OpenBlob(b.blob)
	if err != nil {
		return err
	}
	piece := bodyPieces.Get().(*[]byte)
	defer bodyPieces.Put(piece)
	_, err = io.CopyBuffer(w, struct{ io.Reader }{r}, *piece)
	return errors.Join(err, r.Close())
}
