-- Keep the words of a document and its headings. Pictures, the targets of links and everything about looks are left out.

local function nothing()
  return {}
end

local function inner(element)
  return element.content
end

-- The lists of contents in web pages say nothing that their headings do not say.
local function without_contents(div)
  return not (div.classes:includes("toc") or div.identifier == "toc") and div.content or {}
end

local function plain(header)
  return pandoc.Header(header.level, header.content)
end

local function is_line(cell)
  local block = cell.contents[1]
  return cell.row_span == 1 and cell.col_span == 1 and #cell.contents < 2
    and (not block or block.t == "Plain" or block.t == "Para")
end

-- A table of Markdown has one line in each cell. The cells of other tables, such as those for layout, follow each other.
local function divided(table)
  local rows = pandoc.List(table.head.rows)
  for _, body in ipairs(table.bodies) do
    rows:extend(body.head)
    rows:extend(body.body)
  end
  rows:extend(table.foot.rows)
  local blocks, is_simple = pandoc.List(), true
  for _, row in ipairs(rows) do
    for _, cell in ipairs(row.cells) do
      is_simple = is_simple and is_line(cell)
      blocks:extend(cell.contents)
    end
  end
  return not is_simple and blocks or nil
end

-- The title of a document is a heading, unless a heading is of the highest level.
local function titled(document)
  local title = pandoc.utils.stringify(document.meta.title or "")
  local is_headed = false
  document.blocks:walk({ Header = function(header) is_headed = is_headed or header.level == 1 end })
  if title ~= "" and not is_headed then
    document.blocks:insert(1, pandoc.Header(1, title))
  end
  return pandoc.Pandoc(document.blocks)
end

return {
  { Table = divided },
  { Header = plain, Link = inner, Span = inner, Image = nothing, Div = without_contents },
  { RawBlock = nothing, RawInline = nothing },
  { Pandoc = titled },
}
