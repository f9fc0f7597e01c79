import { type CommandEntry, nameOf, nestedPrograms, type Program, programs } from './commands.ts';
import { didYouMean } from './did-you-mean.ts';

/** The message for a word that is not a command of a program. If it is a command of another program, names that. */
export function unknownCommand(path: string, { commands }: Program, name: string): string {
  const nested = Object.entries(nestedPrograms).map(([word, program]) => ({ path: `svc ${word}`, ...program }));
  if (path !== 'svc-relay') {
    const elsewhere = [{ path: 'svc', ...programs.svc }, ...nested]
      .filter((program) => program.path !== path && program.commands.some((entry) => namesOf(entry).includes(name)))
      .map((program) => `'${program.path} ${name}'`);
    if (elsewhere.length > 0) return `unknown command '${name}'; it is ${elsewhere.join(' or ')}`;
  }
  const own = commands.map(nameOf);
  return `unknown command '${name}'${didYouMean(name, path === 'svc' ? [...own, ...Object.keys(nestedPrograms)] : own)}`;
}

const namesOf = (entry: CommandEntry): string[] => [nameOf(entry), ...(entry.alias === undefined ? [] : [entry.alias])];
