import { utf8ToBytes } from '../../lib/kit/bytes.ts';
import { REACH_OWNER } from '../../lib/mcp/guidance.ts';
import { loadEnvironment } from '../environment.ts';
import { asText, flag, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, line, printable, printJson, sentence, UsageError } from '../output.ts';
import { DEFAULT_NAME, openPairings } from './pairings.ts';
import { type AgentProgram, type Pipe, PROGRAMS } from './programs.ts';

const MAX_FILE = 4 * 1024 * 1024;

const SKILL = `---
name: reach-owner
description: How to reach your owner on their phone with the tools of the svc-relay MCP server - when to ask, how long to wait, and what a refusal means.
---

${REACH_OWNER}`;

/** `svc mcp install`: prints the lines that make a program start `svc mcp`, or adds them (contract 09 §7). */
export async function install(word: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const names = Object.keys(PROGRAMS);
  const program = word === undefined ? undefined : PROGRAMS[word];
  if (!program) {
    const given = word === undefined ? 'missing <program>' : `unknown program '${printable(word)}'`;
    throw new UsageError(`${given}: give one of ${names.join(', ')}`);
  }
  const { directories } = loadEnvironment(context.env);
  const name = option(options, '--name', asText);
  const pairings = await openPairings(directories.agentHome, context);
  if (name !== undefined) pairings.require(name);
  const pipe: Pipe = {
    command: 'svc',
    args: name === undefined || name === DEFAULT_NAME ? ['mcp'] : ['mcp', '--name', name],
  };
  const where = { home: directories.home, cwd: process.cwd() };
  const file = program.file(where);
  const skill = program.skill?.(where);
  const isJson = flag(options, '--json');
  if (!flag(options, '--write')) {
    if (isJson)
      return printJson(context.stdout, {
        program: word,
        file,
        lines: program.lines(pipe),
        skill: skill ?? null,
        written: false,
      });
    line(context.stderr, `Add to ${printable(file)}:`);
    context.stdout.write(program.lines(pipe));
    explain(program, skill, context);
    sentence(context.stderr, `Or let this command add them: ${context.program} mcp install ${word} --write`);
  } else {
    const { files } = await context.createHost(directories.agentHome);
    const byHand = (problem: string) =>
      new CommandError(
        `${printable(file)} ${problem}, so nothing was changed`,
        `Add these lines by hand: ${context.program} mcp install ${word}`,
      );
    // For a link, the target is changed, and the file keeps its permissions.
    const place = (await files.realPath(file)) ?? file;
    const facts = await files.stat(place);
    if (facts && facts.size > MAX_FILE) throw byHand('is larger than 4 MiB');
    const text = (await files.readText(place, MAX_FILE)) ?? '';
    const merged = program.merge(text, pipe);
    if (merged === undefined) throw byHand('is not plain JSON');
    if (merged !== text) await files.writeAtomic(place, utf8ToBytes(merged), facts?.mode ?? 0o600);
    if (skill !== undefined) await files.writeAtomic(skill, utf8ToBytes(SKILL), 0o600);
    if (isJson)
      return printJson(context.stdout, { program: word, file, skill: skill ?? null, written: merged !== text });
    sentence(context.stdout, merged === text ? `${printable(file)} has it already.` : `Added to ${printable(file)}.`);
    if (skill !== undefined) sentence(context.stdout, `Wrote the skill ${printable(skill)}.`);
    explain(program, undefined, context);
  }
  if (pairings.all().length === 0)
    sentence(context.stderr, 'No agent of this machine is paired yet. Pair with: svc mcp pair');
}

function explain({ title, note }: AgentProgram, skill: string | undefined, { stderr }: CommandContext): void {
  if (note !== undefined) for (const text of note.split('\n')) line(stderr, text);
  if (skill !== undefined) line(stderr, `${title} takes skills too: --write also adds ${printable(skill)}`);
}
