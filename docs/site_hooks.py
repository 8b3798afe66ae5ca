"""What MkDocs does beside building pages of docs/.

Documents of the repository outside docs/ become pages of the site, too. Links are written as they work in the
repository; here they are changed to where the page or file is on the site. A link to what the site does not have,
such as a source file, becomes its plain text: the project has no address on the web to lead to. Code blocks that name
a file, which the tests write, get it as their title.
"""

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
COPIED = {
    "README.md": "project/readme.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "reproduction/README.md": "project/reproduction.md",
    "reproduction/results": "results",
}
"""Files and folders of the repository, and where they are on the site. What is not there is left out."""
BLOCK = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?P<before>!?\[(?P<text>[^\[\]]*)\]\()(?P<target>[^)\s#]+)(?P<fragment>#[^)\s]*)?(?P<after>\))")
DEFINITION = re.compile(
    r"^(?P<before>\[(?P<text>[^\[\]]*)\]: )(?P<target>[^\s#]+)(?P<fragment>#\S*)?(?P<after>)$", re.MULTILINE
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the copied files."""
    for source, uri in COPIED.items():
        path = ROOT / source
        if path.is_file():
            files.append(File.generated(config, uri, abs_src_path=str(path)))
        for each in sorted(path.rglob("*")):
            if each.is_file():
                inside = posixpath.join(uri, each.relative_to(path).as_posix())
                files.append(File.generated(config, inside, abs_src_path=str(each)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as on the site, and titles of code blocks."""
    uris = {Path(file.abs_src_path).resolve(): file.src_uri for file in files if file.abs_src_path}
    folder = Path(page.file.abs_src_path or "").resolve().parent
    start = posixpath.dirname(page.file.src_uri) or "."

    def on_site(link: re.Match[str]) -> str:
        if "://" in link["target"]:
            return link[0]
        path = (folder / unquote(link["target"])).resolve()
        uri = uris.get(path) or uris.get(path / "README.md")
        if uri is None:
            # What is not there at all stays, for MkDocs to complain of.
            return link["text"] if path.exists() else link[0]
        return f"{link['before']}{posixpath.relpath(uri, start)}{link['fragment'] or ''}{link['after']}"

    parts = BLOCK.split(markdown)
    parts[::2] = [DEFINITION.sub(on_site, LINK.sub(on_site, text)) for text in parts[::2]]
    parts[1::2] = [re.sub(r"^```(\w+) file=(\S+)", r'```\1 title="\2"', block) for block in parts[1::2]]
    return "".join(parts)
