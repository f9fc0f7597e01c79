import { join } from 'node:path';
import { isObject, parseJson } from '../../lib/kit/json.ts';

/** The name of the server in configurations. */
const SERVER = 'svc-relay';
/** A question may wait for an hour (contract 09 §7). */
const TIMEOUT = 3_700;

/** Command with which a program starts the pipe. */
export interface Pipe {
  command: string;
  args: string[];
}

export interface AgentProgram {
  title: string;
  /** Path of its configuration. */
  file(directories: { home: string; cwd: string }): string;
  /** The lines to add to it. */
  lines(pipe: Pipe): string;
  /** The file with the lines added; the same text if they are already there, undefined if it cannot be parsed. */
  merge(text: string, pipe: Pipe): string | undefined;
  /** Folder from which it loads skills, if it does. */
  skill?(directories: { home: string }): string;
  /** Further notes for its user. */
  note?: string;
}

/** A program whose configuration is JSON, with its servers under `key`. */
function jsonProgram(key: string, entryOf: (pipe: Pipe) => object): Pick<AgentProgram, 'lines' | 'merge'> {
  const write = (value: unknown): string => `${JSON.stringify(value, null, 2)}\n`;
  return {
    lines: (pipe) => write({ [key]: { [SERVER]: entryOf(pipe) } }),
    merge(text, pipe) {
      const config = text.trim() === '' ? {} : parseJson(text);
      if (!isObject(config)) return undefined;
      const servers = config[key] ?? {};
      if (!isObject(servers)) return undefined;
      if (JSON.stringify(servers[SERVER]) === JSON.stringify(entryOf(pipe))) return text;
      return write({ ...config, [key]: { ...servers, [SERVER]: entryOf(pipe) } });
    },
  };
}

const quoted = (text: string): string => JSON.stringify(text);
const listed = (texts: readonly string[]): string => `[${texts.map(quoted).join(', ')}]`;

/** A TOML text in which the table whose body begins at `start` has this command; its other keys stay. */
function withCommand(text: string, start: number, { command, args }: Pipe): string {
  const length = text.slice(start).search(/^[ \t]*\[/m);
  const end = length < 0 ? text.length : start + length;
  const own = text.slice(start, end);
  const rest = own.replace(/^[ \t]*command[ \t]*=.*\n?/m, '').replace(/^[ \t]*args[ \t]*=[ \t]*\[[^\]]*\].*\n?/m, '');
  const lines = `command = ${quoted(command)}\nargs = ${listed(args)}\n`;
  const before = text.slice(0, start);
  return `${before}${before.endsWith('\n') ? '' : '\n'}${lines}${rest}${text.slice(end)}`;
}

/** Programs whose agents speak MCP, by the word of `svc mcp install`. */
export const PROGRAMS: Readonly<Record<string, AgentProgram>> = {
  claude: {
    title: 'Claude Code',
    file: ({ cwd }) => join(cwd, '.mcp.json'),
    ...jsonProgram('mcpServers', ({ command, args }) => ({ type: 'stdio', command, args })),
    skill: ({ home }) => join(home, '.claude', 'skills', 'reach-owner', 'SKILL.md'),
    note:
      'For every project: claude mcp add --scope user svc-relay -- svc mcp\n' +
      `Let questions wait for the phone: MCP_TOOL_TIMEOUT=${TIMEOUT}000 claude\n` +
      'Permission prompts on the phone: claude -p --permission-prompt-tool mcp__svc-relay__phone_approve "..."',
  },
  codex: {
    title: 'Codex',
    file: ({ home }) => join(home, '.codex', 'config.toml'),
    lines: ({ command, args }) =>
      `[mcp_servers.${SERVER}]\ncommand = ${quoted(command)}\nargs = ${listed(args)}\ntool_timeout_sec = ${TIMEOUT}\n`,
    merge(text, pipe) {
      const table = new RegExp(`^[ \\t]*\\[mcp_servers\\."?${SERVER}"?\\].*\\n?`, 'm').exec(text);
      if (table) return withCommand(text, table.index + table[0].length, pipe);
      const before = text === '' || text.endsWith('\n') ? text : `${text}\n`;
      return `${before}${before === '' ? '' : '\n'}${this.lines(pipe)}`;
    },
    skill: ({ home }) => join(home, '.codex', 'skills', 'reach-owner', 'SKILL.md'),
  },
  cursor: {
    title: 'Cursor',
    file: ({ home }) => join(home, '.cursor', 'mcp.json'),
    ...jsonProgram('mcpServers', ({ command, args }) => ({ command, args })),
  },
  gemini: {
    title: 'Gemini CLI',
    file: ({ home }) => join(home, '.gemini', 'settings.json'),
    ...jsonProgram('mcpServers', ({ command, args }) => ({ command, args, timeout: TIMEOUT * 1000 })),
  },
  vscode: {
    title: 'VS Code',
    file: ({ cwd }) => join(cwd, '.vscode', 'mcp.json'),
    ...jsonProgram('servers', ({ command, args }) => ({ type: 'stdio', command, args })),
  },
};
