export interface SentForm {
  fields: [name: string, value: string][];
  file: { name: string; filename: string; contentType: string; content: Buffer };
}

/** A multipart body, read byte by byte: a file and fields, and nothing around them. Throws for anything else. */
export function readForm(contentType: string | undefined, body: Buffer): SentForm {
  const boundary = /^multipart\/form-data; boundary=(?:"([^"]+)"|(\S+))$/.exec(contentType ?? '');
  const mark = boundary?.[1] ?? boundary?.[2];
  if (!mark) throw new Error(`not a form: ${contentType}`);
  const delimiter = Buffer.from(`\r\n--${mark}`);
  const whole = Buffer.concat([Buffer.from('\r\n'), body]);
  const fields: SentForm['fields'] = [];
  let file: SentForm['file'] | undefined;
  for (let at = whole.indexOf(delimiter); ; ) {
    const start = at + delimiter.length;
    if (whole.subarray(start).toString('latin1') === '--\r\n') break;
    const end = whole.indexOf(delimiter, start);
    const headEnd = whole.indexOf('\r\n\r\n', start);
    if (end < 0 || headEnd < 0 || headEnd > end) throw new Error('the form is not complete');
    const head = whole.subarray(start + 2, headEnd).toString();
    const content = whole.subarray(headEnd + 4, end);
    const [, name = '', filename] =
      /^Content-Disposition: form-data; name="([^"]*)"(?:; filename="([^"]*)")?(?:\r\n|$)/.exec(head) ?? [];
    if (filename === undefined) fields.push([name, content.toString()]);
    else if (file) throw new Error('two files');
    else file = { name, filename, contentType: /\r\nContent-Type: (.+)$/.exec(head)?.[1] ?? '', content };
    at = end;
  }
  if (!file) throw new Error('no file');
  return { fields, file };
}
