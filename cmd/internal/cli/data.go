package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/swampd/swampd/messages"
)

func (a *app) dataCommand() *cobra.Command {
	group := a.group("data", "Write, read and find artifacts",
		a.dataListCommand(), a.dataGetCommand(), a.dataPutCommand(), a.dataAppendCommand(),
		a.dataVersionsCommand(), a.dataQueryCommand(), a.dataDeleteCommand())
	group.Long = "Write, read and find artifacts: what steps leave for later steps, later runs and people. Each PUT is a version\n" +
		"of its own that never changes again.\n\n" +
		"Within a step they go through its worker, which SWAMP_DATA_URL names, and need no token. Elsewhere they ask the\n" +
		"orchestrator that --server names."
	return group
}

// dataPage is how many items are asked for at a time.
const dataPage = 500

// pages asks for pages until there are enough items, or no more. next asks for one, of at most so many items from a cursor on,
// and returns how many came and the cursor of the one after.
func pages(limit int, next func(most int32, cursor string) (came int, after string, err error)) error {
	for total, cursor := 0, ""; ; {
		most := dataPage
		if limit > 0 {
			most = min(limit-total, dataPage)
		}
		came, after, err := next(int32(most), cursor)
		if err != nil {
			return err
		}
		total += came
		if after == "" || limit > 0 && total >= limit {
			return nil
		}
		cursor = after
	}
}

func (a *app) dataListCommand() *cobra.Command {
	limit := countValue{n: 100, max: 1 << 30}
	cmd := &cobra.Command{
		Use:     "list [PREFIX]",
		Short:   "List artifacts by name, each with its latest version",
		Example: "  swamp data list\n  swamp data list reports/ --limit 0",
		Args:    wants("[PREFIX]"),
	}
	cmd.Flags().Var(&limit, "limit", "how many at most; 0 is all")
	f := a.addData(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		d, err := a.newDataClient(from, f)
		if err != nil {
			return err
		}
		defer d.close()
		prefix := ""
		if len(args) > 0 {
			prefix = args[0]
		}
		all := &messages.DataListResult{}
		err = pages(limit.n, func(most int32, cursor string) (int, string, error) {
			page := &messages.DataListResult{}
			err := d.ask(cmd.Context(), messages.VerbDataList, &messages.DataListParams{Prefix: prefix, Limit: most, Cursor: cursor}, page)
			all.Items = append(all.Items, page.GetItems()...)
			return len(page.GetItems()), page.GetCursor(), err
		})
		if err != nil {
			return err
		}
		all.Count = int32(len(all.GetItems()))
		switch {
		case a.json():
			return printShape(a.host.Stdout, all)
		case all.GetCount() == 0 && prefix != "":
			fmt.Fprintf(a.host.Stderr, "no artifact has a name that begins with %s\n", oneLine(prefix))
			return nil
		case all.GetCount() == 0:
			fmt.Fprintln(a.host.Stderr, "no artifacts yet: write one with swamp data put NAME FILE")
			return nil
		}
		t := table{columns: []string{"NAME", "VERSION", "SIZE", "TYPE", "CREATED", "BY"}}
		for _, item := range all.GetItems() {
			t.add(item.GetName(), versionText(item), sizeText(uint64(item.GetSize())), item.GetContentType(), clock(a.host.Now(), item.GetCreatedAt()), writerText(item))
		}
		return t.write(a.host.Stdout, a.host.color())
	})
}

func (a *app) dataVersionsCommand() *cobra.Command {
	limit := countValue{n: 100, max: 1 << 30}
	cmd := &cobra.Command{
		Use:     "versions NAME",
		Short:   "List the versions of an artifact, newest first",
		Example: "  swamp data versions reports/daily",
		Args:    wants("NAME"),
	}
	cmd.Flags().Var(&limit, "limit", "how many at most; 0 is all")
	f := a.addData(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		d, err := a.newDataClient(from, f)
		if err != nil {
			return err
		}
		defer d.close()
		all := &messages.DataVersionsResult{}
		err = pages(limit.n, func(most int32, cursor string) (int, string, error) {
			page := &messages.DataVersionsResult{}
			err := d.ask(cmd.Context(), messages.VerbDataVersions, &messages.DataVersionsParams{Name: args[0], Limit: most, Cursor: cursor}, page)
			all.Items = append(all.Items, page.GetItems()...)
			return len(page.GetItems()), page.GetCursor(), err
		})
		if err != nil {
			return err
		}
		all.Count = int32(len(all.GetItems()))
		if a.json() {
			return printShape(a.host.Stdout, all)
		}
		t := table{columns: []string{"VERSION", "SIZE", "TYPE", "CREATED", "BY", "SHA-256"}}
		for _, item := range all.GetItems() {
			t.add(versionText(item), sizeText(uint64(item.GetSize())), item.GetContentType(), clock(a.host.Now(), item.GetCreatedAt()), writerText(item), item.GetDigest())
		}
		return t.write(a.host.Stdout, a.host.color())
	})
}

func (a *app) dataQueryCommand() *cobra.Command {
	limit := countValue{n: 100, max: 1 << 30}
	cmd := &cobra.Command{
		Use:   "query CEL",
		Short: "Find artifacts, workers, leases and tokens by an expression",
		Long: "Find what a CEL expression is true for. Each record has a kind: artifact, worker, pending, lease or token, and the\n" +
			"fields that its lists show. A field that a record lacks is null. Prints one JSON object a line.",
		Example: "  swamp data query 'kind == \"artifact\" && size > 1e6'\n" +
			"  swamp data query 'kind == \"worker\" && status == \"idle\"'",
		Args: wants("CEL"),
	}
	cmd.Flags().Var(&limit, "limit", "how many at most; 0 is all")
	f := a.addData(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		d, err := a.newDataClient(from, f)
		if err != nil {
			return err
		}
		defer d.close()
		all := &messages.DataQueryResult{}
		err = pages(limit.n, func(most int32, cursor string) (int, string, error) {
			page := &messages.DataQueryResult{}
			err := d.ask(cmd.Context(), messages.VerbDataQuery, &messages.DataQueryParams{Query: args[0], Limit: most, Cursor: cursor}, page)
			all.Items = append(all.Items, page.GetItems()...)
			return len(page.GetItems()), page.GetCursor(), err
		})
		if err != nil {
			return err
		}
		all.Count = int32(len(all.GetItems()))
		if a.json() {
			return printShape(a.host.Stdout, all)
		}
		for _, item := range all.GetItems() {
			line, err := json.Marshal(item.AsMap()) // in the order of names
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(a.host.Stdout, safeText(string(line))); err != nil {
				return err
			}
		}
		if all.GetCount() == 0 {
			fmt.Fprintln(a.host.Stderr, "nothing is found")
		}
		return nil
	})
}

func (a *app) dataDeleteCommand() *cobra.Command {
	version := countValue{max: 1<<31 - 1}
	cmd := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Remove an artifact, or one version of it",
		Example: "  swamp data delete reports/daily --version 3",
		Args:    wants("NAME"),
	}
	cmd.Flags().Var(&version, "version", "the version to remove; without it, all")
	cmd.Flags().Lookup("version").DefValue = ""
	f := a.addData(cmd.Flags())
	return a.command(cmd, func(cmd *cobra.Command, args []string, from settings) error {
		d, err := a.newDataClient(from, f)
		if err != nil {
			return err
		}
		defer d.close()
		resp, err := d.do(cmd.Context(), http.MethodDelete, artifactPath(args[0]), versionQuery(version.n), http.Header{}, nil)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if a.json() {
			shape := struct {
				Name    string `json:"name"`
				Version *int   `json:"version"`
				Deleted bool   `json:"deleted"`
			}{Name: args[0], Deleted: true}
			if version.n > 0 {
				shape.Version = &version.n
			}
			return json.NewEncoder(a.host.Stdout).Encode(shape)
		}
		what := oneLine(args[0])
		if version.n > 0 {
			what += " version " + strconv.Itoa(version.n)
		}
		_, err = fmt.Fprintf(a.host.Stdout, "%s: deleted\n", what)
		return err
	})
}

// versionQuery pins a version; 0: none.
func versionQuery(n int) url.Values {
	if n == 0 {
		return nil
	}
	return url.Values{"version": {strconv.Itoa(n)}}
}

func versionText(item *messages.ArtifactItem) string {
	text := strconv.FormatUint(uint64(item.GetVersion()), 10)
	if item.GetOpen() {
		text += " (open)"
	}
	return text
}

// writerText is who wrote a version.
func writerText(item *messages.ArtifactItem) string {
	if item.GetStep() == "" {
		return "-"
	}
	return item.GetJob() + "/" + item.GetStep()
}

// printArtifact shows a version that was written or read.
func (a *app) printArtifact(item *messages.ArtifactItem) error {
	if a.json() {
		return printShape(a.host.Stdout, item)
	}
	_, err := fmt.Fprintf(a.host.Stdout, "%s version %s, %s\n", oneLine(item.GetName()), versionText(item), sizeText(uint64(item.GetSize())))
	return err
}
