package persistence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// restoreEpochs is how far the epoch of a restored store is above that of its backup. The store may have gone on since it
// was backed up, and what was promised in those boots must not look like promises of the next ones.
const restoreEpochs = 1 << 12

// RestoreBackup reads a backup into an empty engine, empty logs of output and no bodies. The store that it makes is one generation
// above the backup's, and its epoch is above whatever the store has come to since. After an error none of them may be used.
func RestoreBackup(r io.Reader, engine Engine, output OutputLog, blobs Blobs) (BackupInfo, error) {
	if meta, err := ReadMeta(engine); err != nil || meta.StoreID != "" {
		return BackupInfo{}, errors.Join(errors.New("restore: the store is not empty"), err)
	}
	w := &restorer{engine: engine, output: output, blobs: blobs, limits: engine.Limits()}
	info, err := ReadBackup(r, w.take)
	if err == nil {
		err = w.finish(info)
	}
	if err != nil {
		if w.body != nil {
			err = errors.Join(err, w.body.Discard())
		}
		return BackupInfo{}, err
	}
	return info, nil
}

// restorer writes what it gets in pieces of a sensible size.
type restorer struct {
	engine Engine
	output OutputLog
	blobs  Blobs
	limits Limits
	batch  Batch

	dispatch string
	chunks   []Chunk
	size     int // of chunks

	body BlobFile // that is being written
}

func (w *restorer) take(_ BackupInfo, e BackupEntry) error {
	switch {
	case e.Dispatch != "":
		return w.takeChunk(e)
	case e.Body != "":
		return w.takePiece(e)
	}
	if key := string(e.Key); key == keyStore || key == keyHead { // they come last, and new
		return nil
	}
	size := len(e.Key) + len(e.Value) + w.limits.PerEntry
	if n := len(w.batch.Entries); n > 0 && (n+1 > w.limits.Entries/2 || w.batch.bytes+n*w.limits.PerEntry+size > w.limits.Bytes/2) {
		if err := w.apply(); err != nil {
			return err
		}
	}
	w.batch.Put(bytes.Clone(e.Key), bytes.Clone(e.Value))
	return nil
}

func (w *restorer) apply() error {
	if len(w.batch.Entries) == 0 {
		return nil
	}
	if err := w.engine.Apply(&w.batch); err != nil {
		return fmt.Errorf("write the records: %w", err)
	}
	w.batch = Batch{} // the engine may have kept the one before
	return nil
}

func (w *restorer) takeChunk(e BackupEntry) error {
	if e.Dispatch != w.dispatch || w.size >= backupPage {
		if err := w.log(); err != nil {
			return err
		}
	}
	e.Chunk.Data = bytes.Clone(e.Chunk.Data)
	w.dispatch = e.Dispatch
	w.chunks = append(w.chunks, e.Chunk)
	w.size += len(e.Chunk.Data)
	return nil
}

// takePiece goes on with a body; ReadBackup has seen to it that the piece follows the one before.
func (w *restorer) takePiece(e BackupEntry) (err error) {
	if e.At == 0 {
		if err := w.endBody(); err != nil {
			return err
		}
		if w.body, err = w.blobs.Create(e.Body); err != nil {
			w.body = nil
			return fmt.Errorf("write body %s: %w", e.Body, err)
		}
	}
	if _, err := w.body.Write(e.Piece); err != nil {
		return fmt.Errorf("write body %s: %w", e.Body, err)
	}
	return nil
}

func (w *restorer) endBody() error {
	if w.body == nil {
		return nil
	}
	if err := w.body.Commit(); err != nil {
		return fmt.Errorf("write a body: %w", err)
	}
	w.body = nil
	return nil
}

// log writes the chunks that have been gathered.
func (w *restorer) log() error {
	if len(w.chunks) == 0 {
		return nil
	}
	if _, err := w.output.Append(w.dispatch, w.chunks, 1<<64-1); err != nil {
		return fmt.Errorf("write the output of %q: %w", w.dispatch, err)
	}
	w.chunks, w.size = nil, 0
	return nil
}

// finish writes the rest, and what the store says of itself at the very last: without it, there is none.
func (w *restorer) finish(info BackupInfo) error {
	if err := errors.Join(w.log(), w.endBody(), w.apply()); err != nil {
		return err
	}
	meta := Meta{
		Format: info.Format, StoreID: info.StoreID, Generation: info.Generation + 1,
		Epoch: min(info.Epoch+restoreEpochs, maxEpoch-1), Head: info.Head,
	}
	w.batch.Put([]byte(keyStore), encodeStore(meta))
	w.batch.finish(meta.Head)
	return w.apply()
}
