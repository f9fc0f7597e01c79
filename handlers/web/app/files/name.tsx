/** Characters of a name that fit on one line. */
const SHORT = 32;
/** Characters at the end of a long name, which often tell one file from another. */
const END = 20;

/** The name of a file. A long one has two lines: its beginning, as far as there is room, and its end. */
export function FileName({ name }: { name: string }) {
  const characters = [...name];
  if (characters.length <= SHORT) return <span class="file-name">{name}</span>;
  return (
    <span class="file-name long" title={name}>
      <span>{characters.slice(0, -END).join('')}</span>
      <span>{characters.slice(-END).join('')}</span>
    </span>
  );
}
