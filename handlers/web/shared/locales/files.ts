import type { Table } from '../i18n.ts';

/** Files of the relay, wherever they are shown, and what other apps share with this one. */
const table: Table = {
  'The relay does not hand out this file.': [
    'Das Relay gibt diese Datei nicht heraus.',
    'El relay no entrega este archivo.',
    'リレーはこのファイルを渡しません。',
    'O relay não entrega este arquivo.',
    '中继不提供此文件。',
  ],
  'This file is not there any more.': [
    'Diese Datei gibt es nicht mehr.',
    'Este archivo ya no está.',
    'このファイルはもうありません。',
    'Este arquivo não existe mais.',
    '此文件已不存在。',
  ],
  'The file could not be loaded.': [
    'Die Datei konnte nicht geladen werden.',
    'No se pudo cargar el archivo.',
    'ファイルを読み込めませんでした。',
    'Não foi possível carregar o arquivo.',
    '无法加载此文件。',
  ],
  'This browser cannot show the file.': [
    'Dieser Browser kann die Datei nicht anzeigen.',
    'Este navegador no puede mostrar el archivo.',
    'このブラウザーではファイルを表示できません。',
    'Este navegador não consegue mostrar o arquivo.',
    '此浏览器无法显示该文件。',
  ],
  'Shared with this app': [
    'Mit dieser App geteilt',
    'Compartido con esta app',
    'このアプリに共有されたもの',
    'Compartilhado com este app',
    '分享到此应用的内容',
  ],
  'What another app has shared waits here.': [
    'Hier wartet, was eine andere App geteilt hat.',
    'Aquí espera lo que compartió otra app.',
    'ほかのアプリから共有されたものがここで待っています。',
    'O que outro app compartilhou espera aqui.',
    '其他应用分享的内容在此等待处理。',
  ],
  'What another app has shared waits here until this browser is paired.': [
    'Was eine andere App geteilt hat, wartet hier, bis dieser Browser gekoppelt ist.',
    'Lo que compartió otra app espera aquí hasta que este navegador esté emparejado.',
    'ほかのアプリから共有されたものは、このブラウザーがペアリングされるまでここで待ちます。',
    'O que outro app compartilhou espera aqui até este navegador ser pareado.',
    '其他应用分享的内容会在此等待，直到此浏览器完成配对。',
  ],
  'What was shared did not arrive: the app was not ready yet. Share it once more.': [
    'Das Geteilte kam nicht an: Die App war noch nicht bereit. Teile es noch einmal.',
    'Lo compartido no llegó: la app aún no estaba lista. Compártelo otra vez.',
    '共有されたものは届きませんでした。アプリの準備ができていませんでした。もう一度共有してください。',
    'O que foi compartilhado não chegou: o app ainda não estava pronto. Compartilhe de novo.',
    '分享的内容未送达：应用尚未就绪。请再分享一次。',
  ],
  'Nothing waits here. Share something with this app from another one.': [
    'Hier wartet nichts. Teile aus einer anderen App etwas mit dieser.',
    'Aquí no espera nada. Comparte algo con esta app desde otra.',
    '待っているものはありません。ほかのアプリからこのアプリに共有してください。',
    'Nada espera aqui. Compartilhe algo com este app a partir de outro.',
    '这里没有等待的内容。请从其他应用分享到此应用。',
  ],
  'Too much at once, so these are missing: {names}': [
    'Zu viel auf einmal, daher fehlen: {names}',
    'Demasiado a la vez, así que faltan: {names}',
    '一度に多すぎるため、次のものがありません: {names}',
    'Demais de uma vez, por isso faltam: {names}',
    '一次分享过多，因此缺少：{names}',
  ],
  'This device may not send that. Pair it again to allow it.': [
    'Dieses Gerät darf das nicht senden. Kopple es neu, um es zu erlauben.',
    'Este dispositivo no puede enviar eso. Vuelve a emparejarlo para permitirlo.',
    'このデバイスはそれを送れません。許可するにはもう一度ペアリングしてください。',
    'Este dispositivo não pode enviar isso. Pareie-o de novo para permitir.',
    '此设备无权发送该内容。请重新配对以允许。',
  ],
  "Send to the relay's machine": [
    'An den Rechner des Relays senden',
    'Enviar a la máquina del relay',
    'リレーのマシンに送る',
    'Enviar para a máquina do relay',
    '发送到中继所在的机器',
  ],
  Thread: ['Gespräch', 'Conversación', 'スレッド', 'Conversa', '对话'],
  Discard: ['Verwerfen', 'Descartar', '破棄', 'Descartar', '丢弃'],
  'Reply with it in the inbox': [
    'Im Posteingang damit antworten',
    'Responder con ello en la bandeja de entrada',
    '受信箱でこれを使って返信',
    'Responder com isso na caixa de entrada',
    '在收件箱中用它回复',
  ],
  'Paste into the terminal': [
    'Ins Terminal einfügen',
    'Pegar en la terminal',
    'ターミナルに貼り付け',
    'Colar no terminal',
    '粘贴到终端',
  ],
  'Another app has shared this text. A shell may run each of its lines.': [
    'Eine andere App hat diesen Text geteilt. Eine Shell führt womöglich jede Zeile aus.',
    'Otra app compartió este texto. Un shell puede ejecutar cada una de sus líneas.',
    'このテキストはほかのアプリから共有されました。シェルは各行を実行することがあります。',
    'Outro app compartilhou este texto. Um shell pode executar cada linha.',
    '此文本由其他应用分享。Shell 可能会执行其中的每一行。',
  ],
};

export default table;
