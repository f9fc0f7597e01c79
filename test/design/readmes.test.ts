import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { cac } from 'cac';
import { expect, it } from 'vitest';
import { type CommandEntry, nestedPrograms, programs } from '../../cli/commands.ts';
import { parseCommandLine } from '../../cli/options.ts';
import { DEVICE_PATHS } from '../../handlers/device-control.ts';
import { routes } from '../../handlers/routes.ts';
import { type SocketRow, sockets } from '../../handlers/sockets.ts';
import { variables } from '../../lib/config.ts';
import { DEVICE_ROWS, type DeviceRow } from '../../lib/operations/device.ts';
import type { OperationRow } from '../../lib/operations/operation.ts';
import { createOperations, type OperationDeps } from '../../lib/operations/table.ts';
import { everyCommand } from '../support/command-table.ts';

const ROOMS = ['handlers', 'lib', 'storage', 'cli', 'test'];
const DOCUMENTS = [
  'README.md',
  'CHANGELOG.md',
  ...ROOMS.map((room) => `${room}/README.md`),
  'cli/REFERENCE.md',
  'handlers/REFERENCE.md',
  'handlers/dashboard/README.md',
  'handlers/web/README.md',
];

const read = (path: string): Promise<string> => readFile(path, 'utf8');

/** The lines between `<!-- name -->` and `<!-- /name -->`. */
function section(text: string, name: string): string[] {
  const [, found] = text.split(`<!-- ${name} -->`);
  return (found?.split(`<!-- /${name} -->`)[0] ?? '').trim().split('\n');
}

/** A document without its fenced code, where `#` and `[` mean something else. */
const prose = (text: string): string => text.replace(/^```.*?^```$/gms, '');

/** Anchors of a document's headings, as GitHub makes them. */
const anchors = (text: string): string[] =>
  [...prose(text).matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );

/** `METHOD path` of each row of the tables that begin with a method and a path. */
const documentedRoutes = (text: string): string[] =>
  [...text.matchAll(/^\| `([A-Z]+)` \| `([^`]+)` \|/gm)].map(([, method, path]) => `${method} ${path}`);

/** A path pattern as the documentation writes it: without the names that a parameter excludes. */
const documentedPath = (path: string): string => path.replace(/\(\?!.*\)(?=:)/, '').replace(/:(\w+)/g, '{$1}');

it.each([
  ['README.md', 160],
  ['cli/README.md', 250],
  ['handlers/README.md', 250],
])('%s has at most %i lines', async (document, most) => {
  const lines = (await read(document)).trimEnd().split('\n');
  expect(lines.length).toBeLessThanOrEqual(most);
});

it.each(ROOMS)('%s/ has a README', (room) => {
  expect(existsSync(`${room}/README.md`)).toBe(true);
});

it.each(DOCUMENTS)('%s: every relative link and anchor resolves', async (document) => {
  const text = prose(await read(document));
  const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
  for (const link of links.filter((target) => !/^[a-z]+:/.test(target))) {
    const [path = '', anchor] = link.split('#') as [string, string?];
    const target = path === '' ? document : join(dirname(document), path);
    expect([link, existsSync(target)]).toEqual([link, true]);
    if (anchor !== undefined) expect(anchors(await read(target))).toContain(anchor);
  }
});

it('lib/README.md lists every package that the relay needs, and files that exist', async () => {
  const [, table = ''] = (await read('lib/README.md')).split(/^## Packages$/m);
  const { dependencies } = JSON.parse(await read('package.json')) as { dependencies: Record<string, string> };
  expect(Object.keys(dependencies).filter((name) => !table.includes(`\`${name}\``))).toEqual([]);
  const files = [...table.matchAll(/`([\w-]+(?:\/[\w-]+)+\.\w+)`/g)].map(([, file = '']) => file);
  expect(files.length).toBeGreaterThan(10);
  // Siblings of a file in the same row are written without the folder that they share.
  expect(files.filter((file) => !existsSync(file) && !existsSync(join('cli/runtime', file)))).toEqual([]);
});

/** Rows of the table "MCP tools": the operations that every relay has. They need no domain to be listed. */
const TOOLS = createOperations({} as OperationDeps).rows();

const cell = (text: string): string => text.replaceAll('|', '\\|');

const toolRow = ({ name, title, effect, grant }: OperationRow): string =>
  `| \`${name}\` | ${cell(title)} | ${effect} | ${grant === null ? 'any session' : `\`${grant}\``} |`;

function deviceRow({ method, path, title, input: { entries } }: DeviceRow): string {
  const names = Object.entries(entries)
    .filter(([name]) => name !== 'device')
    .map(([name, { type }]) => `\`${name}${type === 'optional' ? '?' : ''}\``);
  return `| \`${method}\` | \`${path}\` | ${names.join(', ') || '-'} | ${cell(title)} |`;
}

interface Table {
  columns: readonly string[];
  rows: readonly string[];
}

/**
 * Compares what stands between `<!-- name -->` and `<!-- /name -->` with tables, by name. `npx vitest run test/design -u`
 * writes them; all tables of a document go into one call.
 */
async function expectTables(document: string, tables: Record<string, Table>): Promise<void> {
  let text = await read(document);
  for (const [name, { columns, rows }] of Object.entries(tables)) {
    const place = new RegExp(`(?<=^<!-- ${name} -->\n).*(?=^<!-- /${name} -->$)`, 'ms');
    expect(text).toMatch(place);
    const lines = [`| ${columns.join(' | ')} |`, `|${'---|'.repeat(columns.length)}`, ...rows];
    // A comment ends a table, so empty lines part them.
    text = text.replace(place, () => `\n${lines.join('\n')}\n\n`);
  }
  await expect(text).toMatchFileSnapshot(`../../${document}`);
}

/** A program, a command, and the options that it takes. */
async function optionRows(program: string, entry: CommandEntry): Promise<string[]> {
  const command = cac(program).command(entry.usage, entry.summary);
  (await entry.load()).define(command);
  return command.options.map(({ rawName, description }) => `| \`${cell(rawName)}\` | ${cell(description)} |`);
}

it('cli/REFERENCE.md lists every command with its options, and every variable of lib/config.ts', async () => {
  const commands = everyCommand.filter(({ program }) => program === 'svc');
  // `svc relay start` is `svc start`: what stands at both places is listed once.
  const short = new Set(commands.filter(({ words }) => words.length === 1).map(({ words: [word] }) => word));
  const listed = commands.filter(({ words }) => words[0] !== 'relay' || !short.has(words[1]));
  const tables: Record<string, Table> = {};
  const usages: string[] = [];
  for (const { words, entry } of listed) {
    const name = ['svc', ...words].join(' ');
    usages.push(`| \`${cell(['svc', ...words.slice(0, -1), entry.usage].join(' '))}\` | ${cell(entry.summary)} |`);
    const rows = await optionRows('svc', entry);
    if (rows.length > 0) tables[name] = { columns: [`Option of \`${name}\``, 'Meaning'], rows };
  }
  const row = ({ name, fallback, meaning }: { name: string; fallback: string; meaning: string }) =>
    `| \`${name}\` | ${fallback === 'unset' ? 'unset' : `\`${fallback}\``} | ${cell(meaning)} |`;
  await expectTables('cli/REFERENCE.md', {
    commands: { columns: ['Command', 'What it does'], rows: usages },
    variables: { columns: ['Variable', 'Default', 'Meaning'], rows: Object.values(variables).map(row) },
    ...tables,
  });
});

it('handlers/REFERENCE.md lists the rows of Device Control, and the tools of MCP', async () => {
  await expectTables('handlers/REFERENCE.md', {
    'device-control': {
      columns: ['Method', 'Path', 'Arguments', 'What it does'],
      rows: DEVICE_ROWS.map(deviceRow),
    },
    tools: { columns: ['Tool', 'What it does', 'Effect', 'Grant'], rows: TOOLS.map(toolRow) },
  });
});

it('handlers/REFERENCE.md lists exactly the rows of the route table', async () => {
  const expected = routes.flatMap(([method, path]) =>
    path === DEVICE_PATHS
      ? DEVICE_ROWS.map((route) => `${route.method} ${route.path}`)
      : [`${method} ${documentedPath(path)}`],
  );
  const documented = documentedRoutes(section(await read('handlers/REFERENCE.md'), 'routes').join('\n'));
  expect(documented.toSorted()).toEqual(expected.toSorted());
});

it('handlers/REFERENCE.md lists exactly the rows of the socket table, with their limits', async () => {
  const row = ({ path, maxMessage, binary }: SocketRow) =>
    `| \`${documentedPath(path)}\` | ${maxMessage / (1024 * 1024)} MiB | ${binary ? 'delivered' : 'ignored'} |`;
  const rows = section(await read('handlers/REFERENCE.md'), 'sockets').filter((line) => line.startsWith('| `'));
  expect(rows.map((line) => line.slice(0, line.lastIndexOf('|', line.length - 3) + 1))).toEqual(sockets.map(row));
});

/** The words of each `svc` command in a document: in its code blocks, after pipes and in `$(…)`, and in its inline code. */
function commandLines(text: string): string[][] {
  const blocks = [...text.matchAll(/^```sh$(.*?)^```$/gms)].flatMap(([, block = '']) => block.split('\n'));
  const inline = [...prose(text).matchAll(/`([^`\n]+)`/g)].map(([, code = '']) => code);
  return [...blocks, ...inline]
    .map((line) => line.replace(/(^|\s)#.*/, ''))
    .flatMap((line) => line.split(/\||\$\(|\)|2>|&&/))
    .map((part) => [...part.matchAll(/"([^"]*)"|(\S+)/g)].map(([, quoted, word = '']) => quoted ?? word))
    .map((words) => (words[0] === 'npx' ? words.slice(1) : words))
    .filter(([program]) => program === 'svc');
}

it('README.md: every svc command exists, with its options and arguments', async () => {
  const lines = commandLines(await read('README.md')).filter((words) => words.length > 1);
  expect(lines.length).toBeGreaterThan(30);
  for (const [, first = '', ...rest] of lines) {
    const nested = nestedPrograms[first];
    const { commands } = nested ?? programs.svc;
    const [name, ...words] = nested ? rest : [first, ...rest];
    const entry = commands.find(({ usage }) => usage.split(' ')[0] === name);
    expect([first, ...rest, entry !== undefined]).toEqual([first, ...rest, true]);
    const command = cac('svc').command((entry as CommandEntry).usage);
    (await (entry as CommandEntry).load()).define(command);
    expect(() => parseCommandLine(command, words), [first, ...rest].join(' ')).not.toThrow();
  }
});

it('README.md: a command with an option that does not exist is found', () => {
  expect(
    commandLines('`svc pair --nope`\n\n```sh\nA=$(npx svc pair --token) # svc x\nls | svc devices "a b"\n```\n'),
  ).toEqual([
    ['svc', 'pair', '--token'],
    ['svc', 'devices', 'a b'],
    ['svc', 'pair', '--nope'],
  ]);
});
