// A browser keeps its cookie back when it comes from a link on another site.  From here it sends it: whoever has logged
// in already goes on to the page that was asked for.
"use strict";
fetch("/session").then((answer) => {
  if (answer.status === 204) window.location.replace(document.querySelector("input[name=next]").value || "/");
}).catch(() => { /* the form is there */ });
