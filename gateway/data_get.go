package gateway

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/swampd/swampd/actors"
	"github.com/swampd/swampd/messages"
)

// getData serves a version: whole, a range of it, or that it has not changed.
func (s *Server) getData(w http.ResponseWriter, r *http.Request, plane *actors.Data, target dataTarget) {
	if !s.downloads.enter() {
		s.failData(w, messages.Faultf(messages.CodeOverloaded, "%d bodies are on their way already: read again a little later", maxDownloads))
		return
	}
	defer s.downloads.leave()
	a, err := plane.Open(target.name, target.version)
	if err != nil {
		s.failData(w, err)
		return
	}
	defer func() {
		if err := a.Close(); err != nil {
			s.log.Warn("body of an artifact not closed", slog.Any(messages.KeyErr, err))
		}
	}()
	h := w.Header()
	h.Set("ETag", a.Tag)
	h.Set("Content-Type", a.Item.GetContentType())
	h.Set("Repr-Digest", digestField(a.Digest))
	h.Set("Swamp-Version", strconv.FormatUint(uint64(a.Item.GetVersion()), 10))
	// Whoever wrote it may have written a page: no browser shall take it for one of ours.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "private, no-cache")
	if target.version != 0 && !a.Item.GetOpen() {
		h.Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	out := &download{ResponseWriter: w, control: http.NewResponseController(w)}
	// Without a time: tags say more, and the time of an open version would stand while it grows.
	http.ServeContent(out, r, "", time.Time{}, a)
}

// download is an answer that has time for each piece, not for all of it.
type download struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (d *download) Write(p []byte) (int, error) {
	if err := d.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return d.ResponseWriter.Write(p)
}
